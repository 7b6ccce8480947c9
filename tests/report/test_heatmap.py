"""Heat maps: the colour is the final value of a run, a cross marks a run that diverged."""

import math

import matplotlib as mpl
import numpy as np
import pytest

from vrl_jax import report
from vrl_jax.report import heatmap, specs, style
from vrl_jax.report.records import Run

SPEC = {'name': 'map', 'y': 'error', 'x': 'period', 'against': 'learning_rate', 'panels': ('b',)}


def _run(algorithm, period, rate, last, b=1.0, status='finished'):
  config = {'algorithm': algorithm, 'period': period, 'learning_rate': rate, 'b': b}
  metrics = ({'step': 0, 'error': 100.0}, {'step': 9, 'error': last})
  return Run(f'{algorithm}{period}{rate}{b}', config, metrics, {'status': status})


RUNS = [
  _run('local_sgd', 2, 0.1, 0.5),
  _run('local_sgd', 8, 0.1, math.inf, status='diverged'),
  _run('local_sgd', 2, 0.01, 2.0),
  _run('local_sgd', 8, 0.01, 100.5),  # above its initial value
  _run('vrl_sgd', 2, 0.1, 1e-9),
  _run('vrl_sgd', 8, 0.01, 0.25),
  _run('vrl_sgd', 8, 0.01, 0.75, b=10.0),
]


def _draw():
  (figure,) = specs.figures(RUNS, SPEC)
  with mpl.rc_context(style.RC):
    return heatmap.draw_map(RUNS, figure)


def test_cells_are_final_values_and_crosses_diverged_runs():
  panels = {ax.get_title(): ax for ax in _draw().axes if ax.images}
  assert list(panels) == ['Local SGD, b = 1', 'VRL-SGD, b = 1', 'Local SGD, b = 10', 'VRL-SGD, b = 10']
  grid = lambda name: np.ma.filled(panels[name].images[0].get_array(), np.nan)
  np.testing.assert_array_equal(grid('Local SGD, b = 1'), [[2.0, np.nan], [0.5, np.nan]])  # γ upwards, k to the right
  np.testing.assert_array_equal(grid('VRL-SGD, b = 1'), [[np.nan, 0.25], [1e-9, np.nan]])
  np.testing.assert_array_equal(grid('VRL-SGD, b = 10'), [[np.nan, 0.75], [np.nan, np.nan]])
  crosses = [ax.lines[0].get_xydata().tolist() if ax.lines else [] for ax in panels.values()]
  assert crosses == [[[1, 1], [1, 0]], [], [], []]
  assert [t.get_text() for t in panels['Local SGD, b = 10'].get_xticklabels()] == ['2', '8']


def test_panels_share_a_color_scale_of_six_decades():
  norm = _draw().axes[0].images[0].norm
  assert (norm.vmin, norm.vmax) == (pytest.approx(1e-4), 100.0)


def test_figure_files_and_description(tmp_path):
  assert [path.name for path in report.comparison_figure(RUNS, tmp_path, SPEC)] == ['map.png', 'map.svg']
  assert specs.describe(specs.figures(RUNS, SPEC)[0]) == 'Error against period k and learning rate γ, panels by b'
