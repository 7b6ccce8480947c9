"""Maps: the colour is where a run ended, a cross where it diverged."""

import math

import matplotlib as mpl
import numpy as np
import pytest

from vrl_jax import errors, launching, report
from vrl_jax.config_files import load_config
from vrl_jax.report import heat, specs, style
from vrl_jax.report.records import Run
from vrl_jax.sweep import sweep_runs
from vrl_jax.train import Diverged

SPEC = {'name': 'map', 'y': 'error', 'x': 'period', 'against': 'learning_rate', 'panels': ('b',)}


def _run(algorithm, period, rate, last, b=1.0, status='finished'):
  config = {'algorithm': algorithm, 'period': period, 'learning_rate': rate, 'b': b}
  metrics = ({'step': 0, 'error': 100.0}, {'step': 9, 'error': last})
  return Run(f'{algorithm}{period}{rate}{b}', config, metrics, {'status': status})


RUNS = [
  _run('local_sgd', 2, 0.1, 0.5),
  _run('local_sgd', 8, 0.1, math.inf, status='diverged'),
  _run('local_sgd', 2, 0.01, 2.0),
  _run('local_sgd', 8, 0.01, 100.5),  # worse than at the start
  _run('vrl_sgd', 2, 0.1, 1e-9),
  _run('vrl_sgd', 8, 0.01, 0.25),
  _run('vrl_sgd', 8, 0.01, 0.75, b=10.0),
]


def _draw():
  (figure,) = specs.figures(RUNS, SPEC)
  with mpl.rc_context(style.RC):
    return heat.draw_map(RUNS, figure)


def test_a_cell_is_where_the_run_ended_and_a_cross_where_it_diverged():
  panels = {ax.get_title(): ax for ax in _draw().axes if ax.images}
  assert list(panels) == ['Local SGD, b = 1', 'VRL-SGD, b = 1', 'Local SGD, b = 10', 'VRL-SGD, b = 10']
  grid = lambda name: np.ma.filled(panels[name].images[0].get_array(), np.nan)
  np.testing.assert_array_equal(grid('Local SGD, b = 1'), [[2.0, np.nan], [0.5, np.nan]])  # γ upwards, k to the right
  np.testing.assert_array_equal(grid('VRL-SGD, b = 1'), [[np.nan, 0.25], [1e-9, np.nan]])
  np.testing.assert_array_equal(grid('VRL-SGD, b = 10'), [[np.nan, 0.75], [np.nan, np.nan]])
  crosses = [ax.lines[0].get_xydata().tolist() if ax.lines else [] for ax in panels.values()]
  assert crosses == [[[1, 1], [1, 0]], [], [], []]
  assert [t.get_text() for t in panels['Local SGD, b = 10'].get_xticklabels()] == ['2', '8']


def test_one_scale_from_the_start_six_decades_down():
  norm = _draw().axes[0].images[0].norm
  assert (norm.vmin, norm.vmax) == (pytest.approx(1e-4), 100.0)


def test_it_is_a_figure_like_any_other(tmp_path):
  assert [path.name for path in report.comparison_figure(RUNS, tmp_path, SPEC)] == ['map.png', 'map.svg']
  assert specs.describe(specs.figures(RUNS, SPEC)[0]) == 'Error against period k and learning rate γ, panels by b'
  with pytest.raises(errors.UserError, match="with against='learning_rate' x must be one config field, not step"):
    specs.figures(RUNS, SPEC | {'x': 'step'})
  with pytest.raises(errors.UserError, match="no run has the config field 'rate'"):
    specs.figures(RUNS, SPEC | {'against': 'rate'})


def test_the_map_of_the_config_is_a_whole_grid():
  runs = dict(sweep_runs(load_config('figures/robustness')))
  cells = {(run.algorithm, run.b, run.period, run.learning_rate) for run in runs.values()}
  assert len(cells) == len(runs) == np.prod([len({cell[i] for cell in cells}) for i in range(4)])


@pytest.mark.parametrize('may_diverge', [True, False])
def test_a_sweep_that_may_diverge_is_no_failure(may_diverge, tmp_path, capsys):
  config = load_config('quadratic')
  config.steps, config.log_every_step, config.compilation_cache = 400, False, False
  config.sweep = ({'name': 'too large', 'learning_rate': 5.0},)
  if may_diverge:
    config.may_diverge = True
    launching.run(config, tmp_path)
    assert '1 of the runs diverged: too large' in capsys.readouterr().out
  else:
    with pytest.raises(Diverged, match='1 of the runs diverged: too large'):
      launching.run(config, tmp_path)
