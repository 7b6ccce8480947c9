"""A finished run that is extended has the same result as one that had the full length from the start."""

import functools
import json

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at, small_config
from support.launches import assert_same_run, checkpoint_steps, contents, summary

from vrl_jax.config.files import load_config
from vrl_jax.errors import Interrupted, UserError
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.sweep import run_sweep


def config(**fields):
  """Rounds of 4 steps (the first has 1), a log line every 10 steps."""
  return small_config(**{'schedule': 'constant', 'warmup_steps': 3, 'checkpoint_every': 0} | fields)


@pytest.fixture(scope='module')
def longer(tmp_path_factory):
  """A run of 40 steps with these fields."""

  @functools.cache
  def run(fields):
    folder = tmp_path_factory.mktemp('longer')
    train_and_evaluate(config(**dict(fields)), folder)
    return folder

  return lambda **fields: run(tuple(fields.items()))


@pytest.mark.parametrize(
  ('fields', 'steps', 'resumes_from'),
  [
    ({}, 21, 21),  # ends with a whole round and at a log point
    ({}, 23, 21),  # the last round is cut short
    ({}, 17, 13),  # only the end of the run makes a log line of step 17
    ({'first_period': 4}, 3, 0),  # the only round is cut short
    ({'log_every_step': True}, 15, 13),
    ({'period': 2, 'max_period': 4, 'x0': 9.0, 'eval_every': 4.0}, 16, None),
  ],
)
def test_an_extended_run_is_the_longer_run(fields, steps, resumes_from, longer, tmp_path, capsys):
  train_and_evaluate(config(steps=steps, **fields), tmp_path / 'run')
  result = train_and_evaluate(config(steps=40, **fields), tmp_path / 'run')
  assert (result['status'], result['step']) == ('finished', 40)
  assert resumes_from in (result['resumed_from_step'], None)
  assert_same_run(tmp_path / 'run', longer(**fields))
  assert json.loads((tmp_path / 'run' / 'config.json').read_text())['steps'] == 40
  assert (steps in checkpoint_steps(tmp_path / 'run')) == (steps == resumes_from)
  before = contents(tmp_path / 'run')
  train_and_evaluate(config(steps=40, **fields), tmp_path / 'run')
  assert 'already finished at step 40' in capsys.readouterr().out
  assert contents(tmp_path / 'run') == before


def test_twice_by_epochs_and_stopped_in_between(longer, tmp_path, monkeypatch):
  by_epochs = lambda epochs: config(steps=None, epochs=epochs, checkpoint_every=1)
  train_and_evaluate(by_epochs(11.0), tmp_path / 'run')
  with signal_at(monkeypatch, 17), pytest.raises(Interrupted):
    train_and_evaluate(by_epochs(30.0), tmp_path / 'run')
  train_and_evaluate(by_epochs(30.0), tmp_path / 'run')
  assert summary(tmp_path / 'run')['step'] == 30
  assert train_and_evaluate(by_epochs(40.0), tmp_path / 'run')['resumed_from_step'] == 29
  assert_same_run(tmp_path / 'run', longer())


@pytest.mark.parametrize(
  ('fields', 'steps', 'message'),
  [
    ({'schedule': 'linear'}, 30, "the run cannot be extended: schedule='linear' follows the length of the run"),
    ({}, 16, 'steps=17 there and 16 now; choose another'),
    ({'period': 'auto'}, 30, "the run cannot be extended: period='auto' follows the length of the run"),
  ],
)
def test_runs_that_cannot_be_extended(fields, steps, message, tmp_path):
  train_and_evaluate(config(steps=17, **fields), tmp_path)
  before = contents(tmp_path)
  with pytest.raises(UserError, match=message):
    train_and_evaluate(config(steps=steps, **fields), tmp_path)
  assert contents(tmp_path) == before


def test_without_the_checkpoint_before_the_last_round(tmp_path):
  """As of a run of an earlier version."""
  train_and_evaluate(config(steps=17), tmp_path)
  (tmp_path / 'checkpoints' / '13').rename(tmp_path / 'checkpoints' / 'gone')
  before = contents(tmp_path)
  with pytest.raises(UserError, match='cannot be extended: the last round of the run was shorter'):
    train_and_evaluate(config(steps=40), tmp_path)
  assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_sweep_is_extended(tmp_path):
  sweep = load_config('quadratic')
  sweep.update(log_every_step=False, eval_every=20.0, sweep=({'name': 'S-SGD', 'algorithm': 's_sgd'}, {'name': 'VRL'}))
  for steps in (40, 60):
    sweep.steps = steps
    run_sweep(sweep, tmp_path)
  for folder in ('S-SGD', 'VRL'):
    assert (summary(tmp_path / folder)['resumed_from_step'], summary(tmp_path / folder)['step']) == (40, 60)
