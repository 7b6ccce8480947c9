"""The comparison table."""

import re

import numpy as np
import pytest
from support.report_samples import lenet as lenet
from support.report_samples import lenet_points, write_run
from support.report_samples import quadratic as quadratic

from vrl_jax import errors, report
from vrl_jax.report import series


def test_columns_and_rows(lenet):
  sweep = report.read_any(lenet)
  text = report.comparison_table(sweep).splitlines()
  assert [title for title in re.split('  +', text[0])][:4] == ['run', 'train loss', 'test acc. %', '× S-SGD']
  assert 'distance' not in text[0] and len(text) == 2 + 5
  losses = [run.final('train_loss') for run in sweep.runs if run.algorithm == 'vrl_sgd']
  row = next(line for line in text if line.startswith('VRL-SGD '))
  assert f'{np.mean(losses):.5f} ± {np.std(losses, ddof=1):.5f}' in row and '152 MB' in row and ' 352 ' in row
  markdown = report.comparison_table(sweep, 'markdown').splitlines()
  assert len({line.count('|') for line in markdown}) == 1
  bold = [line for line in markdown if '**' in line]
  assert len(bold) == 1 and bold[0].startswith('| S-SGD ')
  assert text[-1].endswith('diverged') and ' nan ' in text[-1]
  with pytest.raises(errors.UserError, match="'csv', must be one of text, markdown, html"):
    report.comparison_table(sweep, 'csv')


def test_best_values_are_chosen_among_comparable_runs(quadratic):
  sweep = report.read_any(quadratic)
  assert series.facets(sweep.runs) == ['b', 'period']
  rows = [re.split(r' *\| *', line) for line in report.comparison_table(sweep, 'markdown').splitlines()]
  assert rows[0][1:6] == ['run', 'b', 'k', 'train loss', 'distance']
  found = {(row[1], row[2], row[3]): row[5] for row in rows}
  assert found['VRL-SGD-W', '100', '20'] == '**3.10e-06**' and found['VRL-SGD', '1', '20'].startswith('**')
  assert found['S-SGD', '100', '–'].startswith('5.') and found['Local SGD', '100', '20'] == '12.0'


def test_one_s_sgd_run_is_the_baseline_of_all_periods(tmp_path):
  write_run(tmp_path / 's', lenet_points('s_sgd'), algorithm='s_sgd', period=1, seed=0)
  for k in (10, 40):
    for algorithm in ('local_sgd', 'vrl_sgd'):
      write_run(tmp_path / f'{algorithm}{k}', lenet_points(algorithm, k), algorithm=algorithm, period=k, seed=0)
  sweep = report.read_any(tmp_path)
  assert series.facets(sweep.runs) == ['period']
  lines = series.make_lines(sweep.runs, ['period'])
  assert [line.name for line in series.lines_at(lines, ['period'], ['40'])] == ['s', 'local_sgd40', 'vrl_sgd40']
  table = report.comparison_table(sweep).splitlines()
  assert all(re.search(r' \d+\.\d\d +[\d,]+ +[\d.]+ [MG]B', line) for line in table[2:])
  spec = {'y': 'train_loss', 'x': 'epoch', 'panels': ['period']}
  assert report.comparison_figure(sweep, tmp_path / 'figure.svg', spec)
