"""Reading runs and sweeps, the table, the lines of a figure, and what is drawn."""

import math
import re
import shutil

import matplotlib as mpl
import numpy as np
import pytest
from report_samples import lenet as lenet
from report_samples import lenet_lines, quadratic_lines, write_csv, write_run
from report_samples import quadratic as quadratic

from vrl_jax import errors, report
from vrl_jax.report import figures, names, series, specs, style

PNG = b'\x89PNG'


def test_reads_runs_sweeps_and_both(lenet, tmp_path):
  sweep = report.read_sweep(lenet)
  assert (sweep.title, len(sweep.runs), sweep.missing) == ('LeNet <on> MNIST', 13, ('later',))
  run = report.read_run(lenet / 'vrl_sgd_seed1')
  assert (run.name, run.algorithm, run.status, run.config['seed']) == ('vrl_sgd_seed1', 'vrl_sgd', 'finished', 1)
  assert len(run.column('train_loss')) == 31 and np.isnan(run.column('test_accuracy')[1])
  assert 95 < run.final('test_accuracy') < 100  # In percent, from the last line that has it.
  assert math.isnan(report.read_run(lenet / 'too_fast').final('train_loss'))
  other = shutil.copytree(lenet, tmp_path / 'other')
  both = report.read_any([lenet, other / 'too_fast'])
  assert len(both.runs) == 14 and len({run.name for run in both.runs}) == 14


def test_forgives_what_a_killed_run_leaves(tmp_path):
  lines = [{'step': 0, 'train_loss': 2.0}, {'step': 5, 'train_loss': 1.5}, {'step': 5, 'train_loss': 1.0}]
  run = write_run(tmp_path / 'run', lines, status=None, algorithm='vrl_sgd', first_period=1, period=20)
  with (run / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 10, "train_')
  read = report.read_run(run)
  assert (read.status, read.algorithm, len(read.metrics), read.final('train_loss')) == (
    'unfinished',
    'vrl_sgd_w',
    2,
    1.0,
  )
  assert read.final('test_accuracy') is None


@pytest.mark.parametrize(
  ('file', 'text', 'said'),
  [
    ('config.json', None, 'no such file'),
    ('config.json', '{"a": ', 'not JSON'),
    ('config.json', '[1]', 'a JSON list'),
    ('metrics.jsonl', None, 'no such file'),
    ('metrics.jsonl', '', 'no log point'),
    ('metrics.jsonl', '{"step": 1}\nnonsense\n', 'line 2 is not JSON'),
    ('metrics.jsonl', '{"epoch": 1}\n', 'line 1 is not an object with a "step"'),
    ('summary.json', 'x', 'not JSON'),
    ('partition.json', '{"table": [[1, 2]], "class_names": ["a"]}', 'differ in length'),
  ],
)
def test_bad_files_are_told_in_one_line(tmp_path, file, text, said):
  run = write_run(tmp_path / 'run', [{'step': 0}], algorithm='s_sgd')
  (run / file).unlink(missing_ok=True)
  if text is not None:
    (run / file).write_text(text)
  with pytest.raises(errors.DataError, match=said) as caught:
    report.read_run(run)
  assert file in str(caught.value) and '\n' not in str(caught.value)


def test_table(lenet):
  sweep = report.read_any(lenet)
  text = report.comparison_table(sweep).splitlines()
  assert [title for title in re.split('  +', text[0])][:4] == ['run', 'train loss', 'test acc. %', '× S-SGD']
  assert 'distance' not in text[0] and len(text) == 2 + 5
  losses = [run.final('train_loss') for run in sweep.runs if run.algorithm == 'vrl_sgd']
  row = next(line for line in text if line.startswith('vrl_sgd '))
  assert f'{np.mean(losses):.5f} ± {np.std(losses, ddof=1):.5f}' in row and '152 MB' in row and ' 352 ' in row
  markdown = report.comparison_table(sweep, 'markdown').splitlines()
  assert len({line.count('|') for line in markdown}) == 1
  bold = [line for line in markdown if '**' in line]
  assert len(bold) == 1 and bold[0].startswith('| s_sgd ')
  assert text[-1].endswith('diverged') and ' nan ' in text[-1]
  with pytest.raises(errors.UserError, match='csv'):
    report.comparison_table(sweep, 'csv')


def test_best_is_found_among_the_comparable(quadratic):
  sweep = report.read_any(quadratic)
  assert series.facets(sweep.runs) == ['b', 'period']
  rows = [re.split(r' *\| *', line) for line in report.comparison_table(sweep, 'markdown').splitlines()]
  found = {row[1]: row[3] for row in rows}
  assert found['vrl_sgd_w-b100-k20'] == '**3.10e-06**' and found['vrl_sgd-b1-k20'].startswith('**')
  assert found['s_sgd-b100-k20'].startswith('5.') and found['local_sgd-b100-k20'] == '12.0'


def test_one_s_sgd_run_serves_all_periods(tmp_path):
  write_run(tmp_path / 's', lenet_lines('s_sgd'), algorithm='s_sgd', period=1, seed=0)
  for k in (10, 40):
    for algorithm in ('local_sgd', 'vrl_sgd'):
      write_run(tmp_path / f'{algorithm}{k}', lenet_lines(algorithm, k), algorithm=algorithm, period=k, seed=0)
  sweep = report.read_any(tmp_path)
  assert series.facets(sweep.runs) == ['period']
  lines = series.make_lines(sweep.runs, ['period'])
  assert [line.name for line in series.lines_at(lines, ['period'], ['40'])] == ['s', 'local_sgd40', 'vrl_sgd40']
  table = report.comparison_table(sweep).splitlines()
  assert all(re.search(r' \d+\.\d\d +[\d,]+ +[\d.]+ [MG]B', line) for line in table[2:])
  assert report.comparison_figure(
    sweep, tmp_path / 'figure.svg', {'y': 'train_loss', 'x': 'epoch', 'panels': ['period']}
  )


def test_variants_and_repetitions_have_labels_of_their_own(tmp_path):
  for i, alpha in enumerate((0.1, 0.2, 0.2)):
    write_run(tmp_path / f'run{i}', lenet_lines('easgd'), algorithm='easgd', alpha=alpha, seed=0)
  write_run(tmp_path / 'w', lenet_lines('vrl_sgd'), algorithm='vrl_sgd', first_period=1, period=20, alpha=None, seed=0)
  lines = series.make_lines(report.read_any(tmp_path).runs)
  labels = ['EASGD, α = 0.1', 'EASGD, α = 0.2 (run1)', 'EASGD, α = 0.2 (run2)', 'VRL-SGD-W']
  assert [line.label for line in lines] == labels
  assert len({style.look(line.algorithm, line.variant, line.variants) for line in lines}) == 4


def test_seeds_with_other_log_points(tmp_path):
  for seed, stride in enumerate((1, 2)):
    lines = [{'step': s, 'epoch': s, 'train_loss': float(s + 2 * seed)} for s in range(0, 9 - seed, stride)]
    write_run(tmp_path / f'a-{seed}', lines, algorithm='local_sgd', seed=seed)
  (line,) = series.make_lines(report.read_any(tmp_path).runs)
  curve = series.curve(line.runs, 'epoch', 'train_loss')
  assert line.name == 'a'
  np.testing.assert_allclose(curve.x, np.arange(7))
  np.testing.assert_allclose([curve.low, curve.mean, curve.high], [np.arange(7), np.arange(7) + 1, np.arange(7) + 2])


def test_appendix_grid(quadratic, tmp_path):
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
def test_odd_values_draw_without_warnings(tmp_path, values, log):
  for name in ('vrl_sgd', 'new_thing'):
    lines = [{'step': i, 'communications': i, 'train_loss': value} for i, value in enumerate(values)]
    write_run(tmp_path / name, lines, 'diverged', algorithm=name)
  spec = {'y': 'train_loss', 'x': ['step', 'communications'], 'log_y': log}
  (path,) = report.comparison_figure(report.read_any(tmp_path), tmp_path / 'x.png', spec)
  assert path.read_bytes().startswith(PNG)


def test_bad_specs(lenet, tmp_path):
  sweep = report.read_any(lenet)
  for spec in ({'y': 'beauty'}, {'x': 'mood'}, {'panels': ['moon']}, {'colour': 'red'}, {'name': '../up'}):
    with pytest.raises(
      errors.UserError, match=str(next(iter(np.ravel(list(spec.values()) if 'colour' not in spec else 'colour'))))
    ):
      report.comparison_figure(sweep, tmp_path, spec)


def test_reference(lenet, tmp_path):
  here = report.read_reference(write_csv(tmp_path / 'non_identical_vrl_sgd.csv'))
  there = report.read_reference(write_csv(tmp_path / 'identical_s_sgd.csv'))
  assert (here.label, here.algorithm, here.identical) == ('VRL-SGD (published)', 'vrl_sgd', False)
  assert (there.algorithm, there.identical, len(there.columns['test_accuracy'])) == ('s_sgd', True, 40)
  runs = report.read_any(lenet).runs
  figure = specs.figures(runs, None)[0]
  left, right = figures.draw(runs, figure, [here, there]).axes
  assert (
    len(left.lines) - len(right.lines) == 1
  )  # The other case is not drawn, nor anything published by communications.
  for text in ('1,2,3\n', '1,2,3,4\n1,2,x,4\n', ''):
    (tmp_path / 'bad.csv').write_text(text)
    with pytest.raises(errors.DataError, match='bad.csv'):
      report.read_reference(tmp_path / 'bad.csv')


def test_names():
  assert (
    names.algorithm('cocod_sgd') == 'CoCoD-SGD'
    and names.bytes_(999_600) == '1 MB'
    and names.number(12345.6) == '12,346'
  )
  assert (
    style.look('anything') == style.look('anything')
    and style.look('vrl_sgd').color == style.look('vrl_sgd', 0, 3).color
  )


def test_the_first_figure_is_the_distance_where_it_is_known(tmp_path):
  run = write_run(tmp_path / 'run', quadratic_lines('vrl_sgd', b=100, k=20, steps=40), task='quadratic')
  assert [figure.name for figure in specs.figures(report.read_any(run), None)] == ['distance', 'loss', 'variance']
