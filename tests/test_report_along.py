"""Figures of a metric against a config field: a run is a point."""

import math

import pytest

from configs.figures import period_limit, speedup
from vrl_jax import errors, report, theory
from vrl_jax.report import along, specs
from vrl_jax.report.records import Run
from vrl_jax.sweep import sweep_runs


def _run(algorithm, period, values, seed=0, rate=0.1, status='finished'):
  config = {'algorithm': algorithm, 'period': period, 'seed': seed, 'learning_rate': rate, 'workers': 4}
  metrics = tuple({'step': 10 * i, 'error': value} for i, value in enumerate(values))
  return Run(f'{algorithm}{period}{seed}', config, metrics, {'status': status})


RUNS = [
  _run('vrl_sgd', 4, [9, 9, 2, 4], rate=0.4),
  _run('vrl_sgd', 1, [9, 9, 1, 1], rate=0.1),
  _run('vrl_sgd', 4, [9, 9, 5, 5], seed=1, rate=0.4),
  _run('vrl_sgd', 1, [9, 9, 2, 2], seed=1, rate=0.1),
  _run('local_sgd', 1, [9, 9, 1, 1]),
  _run('local_sgd', 4, [9, math.inf], status='diverged'),
]


def test_a_run_is_the_mean_of_its_second_half():
  first, second, local = along.regroup(RUNS, 'period', 'error')
  assert [(line['period'], line['error']) for line in first.metrics] == [(1, 1), (4, 3)]
  assert [(line['period'], line['error']) for line in second.metrics] == [(1, 2), (4, 5)]
  assert local.metrics[0]['error'] == 1 and math.isnan(local.metrics[1]['error'])
  assert 'period' not in first.config and 'learning_rate' not in first.config  # the rate follows the period here
  assert first.config['workers'] == 4


def test_what_does_not_follow_from_the_field_makes_lines_of_its_own():
  runs = [_run('vrl_sgd', k, [1, k * rate], rate=rate) for k in (1, 2) for rate in (0.1, 0.2)]
  joined = along.regroup(runs, 'period', 'error')
  assert [run.config['learning_rate'] for run in joined] == [0.1, 0.2]
  assert [line['error'] for line in joined[1].metrics] == [0.2, 0.4]


def test_s_sgd_has_no_period_and_is_level():
  runs = [_run('s_sgd', 2, [9, 3], rate=rate) for rate in (0.1, 0.2)]
  runs += [_run('vrl_sgd', k, [1, k], rate=rate) for k in (1, 4) for rate in (0.1, 0.2)]
  joined = along.regroup(runs, 'period', 'error')
  level = [[(line['period'], line['error']) for line in run.metrics] for run in joined if run.algorithm == 's_sgd']
  assert level == [[(1, 3), (4, 3)]] * 2


def test_figure(tmp_path):
  path, vector = report.comparison_figure(RUNS, tmp_path, {'name': 'points', 'y': 'error', 'x': 'period'})
  assert path.name == 'points.png' and path.stat().st_size > 5000
  assert vector.name == 'points.svg' and b'period k' in vector.read_bytes()


@pytest.mark.parametrize('x', ['algorithm', 'nothing', ('period', 'step')])
def test_bad_axes(x):
  with pytest.raises(errors.UserError, match='no run has the metric'):
    specs.figures(RUNS, {'y': 'error', 'x': x})


def test_the_configs_stay_within_theory():
  runs = dict(sweep_runs(period_limit.get_config()))
  assert len(runs) == 14
  assert theory.period_bound('vrl_sgd', 16384, 4) == 16
  assert theory.period_bound('local_sgd', 16384, 4) == pytest.approx(4)
  runs = dict(sweep_runs(speedup.get_config()))
  assert [run.period for name, run in runs.items() if name.startswith('vrl')] == [45, 16, 5, 2]
  for run in runs.values():
    assert len(run.a) == len(run.c) == run.workers
    assert run.learning_rate < 1 / (2 * 2 * max(run.a))
