"""Figures and their specs, and published curves in them."""

import matplotlib as mpl
import pytest
from support.report_samples import lenet as lenet
from support.report_samples import quadratic as quadratic
from support.report_samples import quadratic_points, write_csv, write_run

from vrl_jax import errors, report
from vrl_jax.report import figures, specs

PNG = b'\x89PNG'


def test_grid_of_panels(quadratic, tmp_path):
  before = dict(mpl.rcParams)
  written = report.comparison_figure(report.read_any(quadratic), tmp_path)
  assert [path.name for path in written] == ['distance.png', 'distance.svg', 'variance.png', 'variance.svg']
  first = written[0]
  assert first.read_bytes().startswith(PNG) and first.stat().st_size < 400_000
  assert dict(mpl.rcParams) == before
  runs = report.read_any(quadratic).runs
  (figure,) = specs.figures(runs, {'y': 'distance_to_optimum', 'x': 'step', 'panels': ['b', 'period']})
  axes = figures.draw(runs, figure).axes
  assert len(axes) == 12 and all(len(ax.lines) == 5 and ax.get_yscale() == 'log' for ax in axes)
  assert [ax.get_title() for ax in axes[3:5]] == ['b = 1, k = 20', 'b = 10, k = 2']


@pytest.mark.parametrize(
  'values', [[1.0, 1e-20, 0.0, 0.0], [0.0, 0.0], [None], [3.0], [1.0, 1e200, 1e308, None], [2.0, -1.0]]
)
@pytest.mark.parametrize('log', [True, False])
def test_extreme_values_draw_without_warnings(tmp_path, values, log):
  for name in ('vrl_sgd', 'new_thing'):
    points = [{'step': i, 'communications': i, 'train_loss': value} for i, value in enumerate(values)]
    write_run(tmp_path / name, points, 'diverged', algorithm=name)
  spec = {'y': 'train_loss', 'x': ['step', 'communications'], 'log_y': log}
  (path,) = report.comparison_figure(report.read_any(tmp_path), tmp_path / 'x.png', spec)
  assert path.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
  ('spec', 'message'),
  [
    ({'y': 'beauty'}, "no run has the metric 'beauty'"),
    ({'x': 'mood'}, "no run has the metric 'mood'"),
    ({'x': 'algorithm'}, "no run has the metric 'algorithm'"),  # its values are no numbers
    ({'x': ('period', 'step')}, "no run has the metric 'period'"),  # a config field must be the only x
    ({'panels': ['moon']}, "no run has the config field 'moon'"),
    ({'against': 'moon'}, "no run has the config field 'moon'"),
    (
      {'x': 'step', 'against': 'learning_rate'},
      "x=step, must be one numeric config field with against='learning_rate'",
    ),
    ({'colour': 'red'}, "unknown field 'colour', must be one of name, y, x,"),
    ({'name': '../up'}, "name='../up', must be a file name"),
  ],
)
def test_invalid_specs(lenet, tmp_path, spec, message):
  with pytest.raises(errors.UserError, match=message):
    report.comparison_figure(report.read_any(lenet), tmp_path, spec)


def test_published_curves(lenet, tmp_path):
  non_identical = report.read_reference(write_csv(tmp_path / 'non_identical_vrl_sgd.csv'))
  identical = report.read_reference(write_csv(tmp_path / 'identical_s_sgd.csv'))
  assert (non_identical.label, non_identical.algorithm) == ('VRL-SGD (published)', 'vrl_sgd')
  assert (non_identical.identical, identical.identical) == (False, True)
  assert (identical.algorithm, len(identical.columns['test_accuracy'])) == ('s_sgd', 40)
  runs = report.read_any(lenet).runs
  figure = specs.figures(runs, None)[0]
  left, right = figures.draw(runs, figure, [non_identical, identical]).axes
  # Only the curve with the partition of the runs is drawn, and only against the epoch.
  assert len(left.lines) - len(right.lines) == 1
  for text in ('1,2,3\n', '1,2,3,4\n1,2,x,4\n', ''):
    (tmp_path / 'bad.csv').write_text(text)
    with pytest.raises(errors.DataError, match='bad.csv'):
      report.read_reference(tmp_path / 'bad.csv')


def test_the_distance_comes_first_if_the_optimum_is_known(tmp_path):
  run = write_run(tmp_path / 'run', quadratic_points('vrl_sgd', b=100, k=20, steps=40), task='quadratic')
  assert [figure.name for figure in specs.figures(report.read_any(run), None)] == ['distance', 'loss', 'variance']
