"""Figures with a config field on the x axis, in which a run is a point."""

import math

from vrl_jax import report
from vrl_jax.report import field_axis
from vrl_jax.report.records import Run


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


def test_a_point_is_the_mean_over_the_second_half_of_a_run():
  first, second, local = field_axis.join_along_field(RUNS, 'period', 'error')
  assert [(line['period'], line['error']) for line in first.metrics] == [(1, 1), (4, 3)]
  assert [(line['period'], line['error']) for line in second.metrics] == [(1, 2), (4, 5)]
  assert local.metrics[0]['error'] == 1 and math.isnan(local.metrics[1]['error'])
  assert 'period' not in first.config and 'learning_rate' not in first.config  # in RUNS the rate depends on the period
  assert first.config['workers'] == 4


def test_independent_fields_make_separate_lines():
  runs = [_run('vrl_sgd', k, [1, k * rate], rate=rate) for k in (1, 2) for rate in (0.1, 0.2)]
  joined = field_axis.join_along_field(runs, 'period', 'error')
  assert [run.config['learning_rate'] for run in joined] == [0.1, 0.2]
  assert [line['error'] for line in joined[1].metrics] == [0.2, 0.4]


def test_s_sgd_is_a_horizontal_line_over_the_periods():
  runs = [_run('s_sgd', 2, [9, 3], rate=rate) for rate in (0.1, 0.2)]
  runs += [_run('vrl_sgd', k, [1, k], rate=rate) for k in (1, 4) for rate in (0.1, 0.2)]
  joined = field_axis.join_along_field(runs, 'period', 'error')
  level = [[(line['period'], line['error']) for line in run.metrics] for run in joined if run.algorithm == 's_sgd']
  assert level == [[(1, 3), (4, 3)]] * 2


def test_figure_files(tmp_path):
  path, vector = report.comparison_figure(RUNS, tmp_path, {'name': 'points', 'y': 'error', 'x': 'period'})
  assert path.name == 'points.png' and path.stat().st_size > 5000
  assert vector.name == 'points.svg' and b'period k' in vector.read_bytes()
