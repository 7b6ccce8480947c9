"""A run that is stopped and launched again ends as if nothing had happened."""

import json

import numpy as np
import pytest
from inprocess import compiled_once as compiled_once
from inprocess import signal_at, small_config
from launches import checkpoint_steps, contents, leaves, lines, summary

from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.errors import DataError, UserError
from vrl_jax.signals import Interrupted
from vrl_jax.train import train_and_evaluate


def stop_at(monkeypatch, workdir, step, **fields):
  with signal_at(monkeypatch, step), pytest.raises(Interrupted):
    train_and_evaluate(small_config(**fields), workdir)


def same_run(workdir, whole):
  assert lines(workdir) == lines(whole)
  last = checkpoint_steps(whole)[-1]
  assert leaves(workdir, last) == leaves(whole, last)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """An uninterrupted run."""
  folder = tmp_path_factory.mktemp('whole')
  train_and_evaluate(small_config(), folder)
  return folder


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_every_algorithm_goes_on_bit_for_bit(algorithm, tmp_path, monkeypatch):
  fields = {'algorithm': algorithm, 'period': 1 if algorithm in ('d2', 'extra') else 4, 'steps': 23}
  train_and_evaluate(small_config(checkpoint_every=0, **fields), tmp_path / 'whole')
  stop_at(monkeypatch, tmp_path / 'stopped', 9, **fields)
  result = train_and_evaluate(small_config(**fields), tmp_path / 'stopped')
  assert (result['status'], result['resumed_from_step']) == ('finished', 9)
  same_run(tmp_path / 'stopped', tmp_path / 'whole')


def test_stopped_again_and_again(whole, tmp_path, monkeypatch):
  """At the first round, in mid-segment, at log points (17, 21 and so on), and before the last."""
  for step in (1, 5, 17, 21, 37):
    stop_at(monkeypatch, tmp_path, step)
    assert summary(tmp_path)['status'] == 'interrupted'
    assert checkpoint_steps(tmp_path)[-1] == step
  assert train_and_evaluate(small_config(), tmp_path)['resumed_from_step'] == 37
  same_run(tmp_path, whole)


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
  train_and_evaluate(small_config(**fields), tmp_path / 'whole')
  stop_at(monkeypatch, tmp_path / 'stopped', 9, **fields)
  train_and_evaluate(small_config(**fields), tmp_path / 'stopped')
  same_run(tmp_path / 'stopped', tmp_path / 'whole')


def test_with_another_interval_of_checkpoints_and_another_feed(whole, tmp_path, monkeypatch):
  """How a run is carried out may change; the data's place is a function of the step, so nothing of it is saved."""
  stop_at(monkeypatch, tmp_path, 13)
  train_and_evaluate(small_config(checkpoint_every=3, feed='host'), tmp_path)
  same_run(tmp_path, whole)
  assert json.loads((tmp_path / 'config.json').read_text())['feed'] == 'host'


@pytest.mark.parametrize('devices', (1, 2, 8))
def test_on_another_number_of_devices(whole, devices, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  train_and_evaluate(small_config(devices=devices), tmp_path)
  assert summary(tmp_path)['devices_used'] == devices
  for ours, theirs in zip(lines(tmp_path), lines(whole), strict=True):
    assert ours.keys() == theirs.keys()
    np.testing.assert_allclose([v or 0.0 for v in ours.values()], [v or 0.0 for v in theirs.values()], rtol=1e-4)


def test_seconds_are_summed(whole, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  train_and_evaluate(small_config(), tmp_path)
  times = [json.loads(line)['seconds'] for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
  assert times == sorted(times)
  assert summary(whole)['resumed_from_step'] == 0


def test_a_finished_run_says_so_and_changes_nothing(whole, capsys):
  before = contents(whole)
  assert train_and_evaluate(small_config(), whole) == summary(whole)
  assert 'finished already, at step 40' in capsys.readouterr().out
  assert contents(whole) == before


def test_another_config_is_refused_with_the_differing_fields(whole):
  before = contents(whole)
  with pytest.raises(UserError, match='learning_rate=0.05 there and 0.1 now; period=4 there and 5 now'):
    train_and_evaluate(small_config(period=5, learning_rate=0.1), whole)
  assert contents(whole) == before


def test_half_a_line_that_a_kill_left_is_made_again(whole, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  path = tmp_path / 'metrics.jsonl'
  path.write_text(path.read_text() + '{"step": 25, "epo')
  train_and_evaluate(small_config(), tmp_path)
  same_run(tmp_path, whole)


@pytest.mark.parametrize('damage', ('no file', 'a line less', 'a line twice', 'no JSON', 'no step'))
def test_metrics_that_are_not_the_run_s_are_refused(damage, tmp_path, monkeypatch):
  stop_at(monkeypatch, tmp_path, 21)
  path = tmp_path / 'metrics.jsonl'
  rows = path.read_text().splitlines(keepends=True)
  middle = {'a line less': '', 'a line twice': rows[1] * 2, 'no JSON': rows[1][:9] + '\n', 'no step': '{"epoch": 1}\n'}
  if damage == 'no file':
    path.unlink()
  else:
    path.write_text(rows[0] + middle[damage] + ''.join(rows[2:]))
  before = contents(tmp_path)
  with pytest.raises(DataError, match='metrics.jsonl'):
    train_and_evaluate(small_config(), tmp_path)
  assert contents(tmp_path) == before


def test_the_last_three_and_the_best_are_kept(tmp_path, monkeypatch):
  """The loss rises from step 13 on; the best is kept over a resumption too."""
  from vrl_jax.measuring import Measuring

  measured = Measuring.line
  monkeypatch.setattr(
    Measuring, 'line', lambda self, step, *a: measured(self, step, *a) | {'train_loss': float(abs(step - 13))}
  )
  fields = {'eval_every': 4.0}
  stop_at(monkeypatch, tmp_path, 21, **fields)
  assert checkpoint_steps(tmp_path) == [13, 17, 21]
  stop_at(monkeypatch, tmp_path, 33, **fields)
  assert checkpoint_steps(tmp_path) == [13, 25, 29, 33]
  train_and_evaluate(small_config(**fields), tmp_path)
  assert checkpoint_steps(tmp_path) == [13, 33, 37, 40]


def test_by_minutes_alone(tmp_path):
  train_and_evaluate(small_config(checkpoint_every=0, checkpoint_minutes=1e-9, eval_every=4.0), tmp_path / 'often')
  assert len(checkpoint_steps(tmp_path / 'often')) == 3
  train_and_evaluate(small_config(checkpoint_every=0), tmp_path / 'seldom')
  assert checkpoint_steps(tmp_path / 'seldom') == [40]
