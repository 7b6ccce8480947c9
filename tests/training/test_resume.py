"""A run that is stopped and resumed has the same result as an uninterrupted one."""

import json
import pathlib
import tarfile

import numpy as np
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at, small_config
from support.launches import assert_same_run, checkpoint_steps, contents, lines, summary

from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.config.files import load_config
from vrl_jax.errors import DataError, Interrupted, UserError
from vrl_jax.training.loop import train_and_evaluate

SUPPORT = pathlib.Path(__file__).parents[1] / 'support'


def stop_at(monkeypatch, workdir, step, **fields):
  with signal_at(monkeypatch, step), pytest.raises(Interrupted):
    train_and_evaluate(small_config(**fields), workdir)


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
  """An uninterrupted run."""
  folder = tmp_path_factory.mktemp('uninterrupted')
  train_and_evaluate(small_config(), folder)
  return folder


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_every_algorithm_resumes_bit_for_bit(algorithm, tmp_path, monkeypatch):
  fields = {'algorithm': algorithm, 'period': 1 if algorithm in ('d2', 'extra') else 4, 'steps': 23}
  train_and_evaluate(small_config(checkpoint_every=0, **fields), tmp_path / 'uninterrupted')
  stop_at(monkeypatch, tmp_path / 'stopped', 9, **fields)
  result = train_and_evaluate(small_config(**fields), tmp_path / 'stopped')
  assert (result['status'], result['resumed_from_step']) == ('finished', 9)
  assert_same_run(tmp_path / 'stopped', tmp_path / 'uninterrupted')


@pytest.mark.parametrize('momentum', [0.0, 0.5])
def test_a_transfer_under_way_resumes_bit_for_bit(momentum, tmp_path, monkeypatch):
  fields = {'fragments': 2, 'delay': 2, 'bits': 4, 'dimension': 24, 'period': 4, 'steps': 23, 'momentum': momentum}
  train_and_evaluate(small_config(checkpoint_every=0, **fields), tmp_path / 'uninterrupted')
  stop_at(monkeypatch, tmp_path / 'stopped', 9, **fields)
  train_and_evaluate(small_config(**fields), tmp_path / 'stopped')
  assert_same_run(tmp_path / 'stopped', tmp_path / 'uninterrupted')


def test_stopped_five_times(uninterrupted, tmp_path, monkeypatch):
  """In the first round, within a segment, at log points, and before the last round."""
  for step in (1, 5, 17, 21, 37):
    stop_at(monkeypatch, tmp_path, step)
    assert summary(tmp_path)['status'] == 'interrupted'
    assert checkpoint_steps(tmp_path)[-1] == step
  assert train_and_evaluate(small_config(), tmp_path)['resumed_from_step'] == 37
  assert_same_run(tmp_path, uninterrupted)


FOLLOWING_THE_LOSS = {'period': 2, 'max_period': 4, 'x0': 9.0, 'eval_every': 4.0}


@pytest.mark.parametrize(
  'fields',
  (
    {'log_every_step': True},
    {'period_stages': ((6, 2), (11, 5))},
    {'x64': True},
    FOLLOWING_THE_LOSS,
    FOLLOWING_THE_LOSS | {'log_every_step': True},
  ),
)
def test_with_other_settings(fields, tmp_path, monkeypatch):
  fields = fields | {'steps': 22}
  train_and_evaluate(small_config(**fields), tmp_path / 'uninterrupted')
  stop_at(monkeypatch, tmp_path / 'stopped', 9, **fields)
  train_and_evaluate(small_config(**fields), tmp_path / 'stopped')
  assert_same_run(tmp_path / 'stopped', tmp_path / 'uninterrupted')


def test_resume_with_another_checkpoint_interval_and_feed(uninterrupted, tmp_path, monkeypatch):
  """Fields about execution may change. The position in the data is a function of the step and not saved."""
  stop_at(monkeypatch, tmp_path, 13)
  train_and_evaluate(small_config(checkpoint_every=3, feed='host'), tmp_path)
  assert_same_run(tmp_path, uninterrupted)
  assert json.loads((tmp_path / 'config.json').read_text())['feed'] == 'host'


@pytest.mark.parametrize('devices', (1, 2, 8))
def test_resume_with_another_number_of_devices(uninterrupted, devices, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  train_and_evaluate(small_config(devices=devices), tmp_path)
  assert summary(tmp_path)['devices_used'] == devices
  for ours, theirs in zip(lines(tmp_path), lines(uninterrupted), strict=True):
    assert ours.keys() == theirs.keys()
    np.testing.assert_allclose([v or 0.0 for v in ours.values()], [v or 0.0 for v in theirs.values()], rtol=1e-4)


def test_seconds_are_summed(uninterrupted, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  train_and_evaluate(small_config(), tmp_path)
  times = [json.loads(line)['seconds'] for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
  assert times == sorted(times)
  assert summary(uninterrupted)['resumed_from_step'] == 0


def test_a_finished_run_is_not_repeated(uninterrupted, capsys):
  before = contents(uninterrupted)
  assert train_and_evaluate(small_config(), uninterrupted) == summary(uninterrupted)
  assert 'already finished at step 40' in capsys.readouterr().out
  assert contents(uninterrupted) == before


def test_another_config_is_refused_with_the_differing_fields(uninterrupted):
  before = contents(uninterrupted)
  with pytest.raises(UserError, match='learning_rate=0.05 there and 0.1 now; period=4 there and 5 now'):
    train_and_evaluate(small_config(period=5, learning_rate=0.1), uninterrupted)
  assert contents(uninterrupted) == before


def test_an_incomplete_last_line_of_a_killed_run_is_logged_again(uninterrupted, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  path = tmp_path / 'metrics.jsonl'
  path.write_bytes(path.read_bytes() + b'{"step": 25, "epo\xff')
  train_and_evaluate(small_config(), tmp_path)
  assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize('damage', ('no file', 'a missing line', 'a repeated line', 'no JSON', 'no step'))
def test_damaged_metrics_are_refused(damage, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  path = tmp_path / 'metrics.jsonl'
  rows = path.read_text().splitlines(keepends=True)
  middle = {
    'a missing line': '',
    'a repeated line': rows[1] * 2,
    'no JSON': rows[1][:9] + '\n',
    'no step': '{"epoch": 1}\n',
  }
  if damage == 'no file':
    path.unlink()
  else:
    path.write_text(rows[0] + middle[damage] + ''.join(rows[2:]))
  before = contents(tmp_path)
  with pytest.raises(DataError, match='metrics.jsonl'):
    train_and_evaluate(small_config(), tmp_path)
  assert contents(tmp_path) == before


def test_the_last_three_and_the_best_are_kept(tmp_path, monkeypatch):
  """The loss rises after step 13; the best checkpoint also survives a resumption."""
  from vrl_jax.training.metrics import Evaluator

  measured = Evaluator.log_line
  monkeypatch.setattr(
    Evaluator, 'log_line', lambda self, step, *a: measured(self, step, *a) | {'train_loss': float(abs(step - 13))}
  )
  fields = {'eval_every': 4.0}
  stop_at(monkeypatch, tmp_path, 21, **fields)
  assert checkpoint_steps(tmp_path) == [13, 17, 21]
  stop_at(monkeypatch, tmp_path, 33, **fields)
  assert checkpoint_steps(tmp_path) == [13, 25, 29, 33]
  train_and_evaluate(small_config(**fields), tmp_path)
  assert checkpoint_steps(tmp_path) == [13, 33, 37, 40]


def test_checkpoints_by_minutes(tmp_path):
  train_and_evaluate(small_config(checkpoint_every=0, checkpoint_minutes=1e-9, eval_every=4.0), tmp_path / 'often')
  assert len(checkpoint_steps(tmp_path / 'often')) == 3
  train_and_evaluate(small_config(checkpoint_every=0), tmp_path / 'seldom')
  assert checkpoint_steps(tmp_path / 'seldom') == [40]


def test_a_run_of_an_earlier_version_resumes(tmp_path):
  """Written by commit 14bef54, whose config still had the field `unroll`, and killed after step 120."""
  with tarfile.open(SUPPORT / 'run_of_14bef54.tar.gz') as archive:
    archive.extractall(tmp_path, filter='data')
  assert json.loads((tmp_path / 'run' / 'config.json').read_text())['unroll'] is None
  config = load_config('quadratic')
  config.update(steps=200, checkpoint_every=3, log_every_step=False, eval_every=40.0)
  assert train_and_evaluate(config, tmp_path / 'run')['resumed_from_step'] == 120
  train_and_evaluate(config, tmp_path / 'new')
  for resumed, new in zip(lines(tmp_path / 'run'), lines(tmp_path / 'new'), strict=True):
    assert resumed.keys() == new.keys()
    np.testing.assert_allclose([v or 0.0 for v in resumed.values()], [v or 0.0 for v in new.values()], rtol=1e-9)
