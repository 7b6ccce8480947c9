"""Reading run and sweep directories."""

import math
import shutil

import numpy as np
import pytest
from support.report_samples import lenet as lenet
from support.report_samples import write_run

from vrl_jax import errors, report


def test_reads_a_run_a_sweep_and_several_directories(lenet, tmp_path):
  sweep = report.read_sweep(lenet)
  assert (sweep.title, len(sweep.runs), sweep.missing) == ('LeNet <on> MNIST', 13, ('later',))
  run = report.read_run(lenet / 'vrl_sgd_seed1')
  assert (run.name, run.algorithm, run.status, run.config['seed']) == ('vrl_sgd_seed1', 'vrl_sgd', 'finished', 1)
  assert len(run.column('train_loss')) == 31 and np.isnan(run.column('test_accuracy')[1])
  assert 95 < run.final('test_accuracy') < 100  # in percent, from the last log point that has it
  assert math.isnan(report.read_run(lenet / 'too_fast').final('train_loss'))
  other = shutil.copytree(lenet, tmp_path / 'other')
  both = report.read_any([lenet, other / 'too_fast'])
  assert len(both.runs) == 14 and len({run.name for run in both.runs}) == 14


def test_reads_a_killed_run(tmp_path):
  points = [{'step': 0, 'train_loss': 2.0}, {'step': 5, 'train_loss': 1.5}, {'step': 5, 'train_loss': 1.0}]
  folder = write_run(tmp_path / 'run', points, status=None, algorithm='vrl_sgd', first_period=1, period=20)
  with (folder / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 10, "train_')
  run = report.read_run(folder)
  assert (run.status, run.algorithm, len(run.metrics)) == ('unfinished', 'vrl_sgd_w', 2)
  assert run.final('train_loss') == 1.0 and run.final('test_accuracy') is None


@pytest.mark.parametrize(
  ('file', 'text', 'message'),
  [
    ('config.json', None, 'no such file'),
    ('config.json', '{"a": ', 'not JSON'),
    ('config.json', '[1]', 'is a JSON list, must be a dict'),
    ('metrics.jsonl', None, 'no such file'),
    ('metrics.jsonl', '', 'no log points'),
    ('metrics.jsonl', '{"step": 1}\nnonsense\n', 'line 2 is not JSON'),
    ('metrics.jsonl', '{"epoch": 1}\n', 'line 1 must be an object with a "step"'),
    ('summary.json', 'x', 'not JSON'),
    ('partition.json', '{"table": [[1, 2]], "class_names": ["a"]}', 'must have equal lengths'),
  ],
)
def test_invalid_files_raise_a_one_line_error(tmp_path, file, text, message):
  run = write_run(tmp_path / 'run', [{'step': 0}], algorithm='s_sgd')
  (run / file).unlink(missing_ok=True)
  if text is not None:
    (run / file).write_text(text)
  with pytest.raises(errors.DataError, match=message) as caught:
    report.read_run(run)
  assert file in str(caught.value) and '\n' not in str(caught.value)
