"""A run that loses its directory, by its removal or to another run, ends with one line and leaves the other run alone."""

import contextlib
import shutil

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import small_config
from support.launches import TIMEOUT, assert_same_run, checkpoint_steps, contents, one_line, start, summary, wait_until

from vrl_jax.errors import StorageError, UserError
from vrl_jax.training.checkpoint import CheckpointWriter
from vrl_jax.training.directory_lock import DirectoryLock
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.metrics import Evaluator
from vrl_jax.training.sweep import run_sweep

LOG_LINE, CHECKPOINT = (Evaluator, 'log_line'), (CheckpointWriter, 'save')


@pytest.fixture(scope='module')
def reference(tmp_path_factory):
  folder = tmp_path_factory.mktemp('reference')
  train_and_evaluate(small_config(), folder)
  return folder


@contextlib.contextmanager
def once_at(monkeypatch, moment, step, action):
  """Calls `action` when a run starts to compute the log line or has started to write the checkpoint of `step`."""
  function, done = getattr(*moment), []

  def with_action(self, at, *args):
    result = function(self, at, *args)
    if at == step and not done:
      done.append(at)
      action()
    return result

  with monkeypatch.context() as patch:
    patch.setattr(*moment, with_action)
    yield
  assert done


def remove(run):
  while run.exists():  # again if a checkpoint was being written there
    shutil.rmtree(run, ignore_errors=True)


LOSSES = {
  'removed': (remove, 'the directory was removed or moved during this run'),
  'moved': (lambda run: run.rename(run.with_name('elsewhere')), 'the directory was removed or moved during this run'),
  'unlocked': (lambda run: (run / '.lock').unlink(), 'its .lock was removed during this run'),
  'a new lock': (
    lambda run: ((run / '.lock').rename(run / 'old'), (run / '.lock').touch()),
    'its .lock was removed during this run',
  ),
  'a file in its place': (
    lambda run: (remove(run), run.write_text('?')),
    'another file or directory took its place during this run',
  ),
}


@pytest.mark.parametrize(
  'loss, moment', [*((loss, LOG_LINE) for loss in LOSSES), ('removed', CHECKPOINT), ('moved', CHECKPOINT)]
)
def test_nothing_is_written_after_the_directory_is_lost(loss, moment, tmp_path, monkeypatch):
  lose, message = LOSSES[loss]
  after = []
  with (
    once_at(monkeypatch, moment, 21, lambda: (lose(tmp_path / 'run'), after.append(contents(tmp_path)))),
    pytest.raises(StorageError, match=f'^{tmp_path}/run: {message}') as caught,
  ):
    train_and_evaluate(small_config(checkpoint_every=0 if moment is LOG_LINE else 1), tmp_path / 'run')
  assert '\n' not in str(caught.value)
  if moment is LOG_LINE or loss == 'removed':
    assert contents(tmp_path) == after[0]
  elif loss == 'moved':  # with the checkpoint that was being written
    assert not (tmp_path / 'run').exists()
    assert checkpoint_steps(tmp_path / 'elsewhere')[-1] == 21


@pytest.mark.parametrize(
  'loss, moment, step',
  [('removed', LOG_LINE, 13), ('moved', LOG_LINE, 40), ('moved', CHECKPOINT, 9), ('removed', CHECKPOINT, 40)],
)
def test_the_files_of_a_second_run_are_left_alone(loss, moment, step, reference, tmp_path, monkeypatch):
  run, after = tmp_path / 'run', []

  def second_run():
    LOSSES[loss][0](run)
    assert train_and_evaluate(small_config(), run)['status'] == 'finished'
    after.append(contents(run))

  with (
    once_at(monkeypatch, moment, step, second_run),
    pytest.raises(StorageError, match='/run: another file or directory took its place'),
  ):
    train_and_evaluate(small_config(), run)
  assert contents(run) == after[0]
  assert_same_run(run, reference)


def test_a_second_run_is_refused_even_without_the_lock_file(tmp_path, monkeypatch):
  def second_run():
    (tmp_path / '.lock').unlink()
    with pytest.raises(UserError, match='another process is running in this directory'):
      train_and_evaluate(small_config(), tmp_path)

  with once_at(monkeypatch, LOG_LINE, 21, second_run), pytest.raises(StorageError, match='its .lock was removed'):
    train_and_evaluate(small_config(), tmp_path)
  assert train_and_evaluate(small_config(), tmp_path)['resumed_from_step'] == 17


def test_a_directory_that_is_lost_before_the_first_step(tmp_path, monkeypatch):
  """Its removal, because the run never started, would take the lock of the second run away."""
  from vrl_jax.training import loop

  run, make, locks = tmp_path / 'run', loop.make_experiment, []

  def make_and_lose(*args, **kwargs):
    run.rename(tmp_path / 'moved')
    locks.append(DirectoryLock.acquire(run))
    return make(*args, **kwargs)

  monkeypatch.setattr(loop, 'make_experiment', make_and_lose)
  with pytest.raises(StorageError, match='/run: another file or directory took its place'):
    train_and_evaluate(small_config(), run)
  locks[0].require()
  locks[0].release()


def test_a_directory_that_is_removed_while_the_initial_weights_are_computed(tmp_path, monkeypatch):
  from vrl_jax.training import initial_weights

  train = initial_weights._plain_sgd

  def train_and_lose(*args):
    remove(tmp_path / 'run')
    return train(*args)

  monkeypatch.setattr(initial_weights, '_plain_sgd', train_and_lose)
  with pytest.raises(StorageError, match='/run: the directory was removed or moved during this run'):
    train_and_evaluate(small_config(init_epochs=1.0), tmp_path / 'run')
  assert contents(tmp_path) == {}


def test_a_sweep_that_loses_its_directory(tmp_path, monkeypatch):
  config = small_config(steps=12, checkpoint_every=0)
  config.sweep = ({'name': 'a'}, {'name': 'b'})
  with (
    once_at(monkeypatch, LOG_LINE, 12, (tmp_path / '.lock').unlink),
    pytest.raises(StorageError, match=f'^{tmp_path}: its .lock was removed during this run'),
  ):
    run_sweep(config, tmp_path)
  assert summary(tmp_path / 'a')['status'] == 'finished'
  assert not (tmp_path / 'b').exists()


def test_a_launch_whose_directory_is_moved_ends_with_one_line(tmp_path):
  process = start(tmp_path / 'run', '--config.steps=6000')
  wait_until(lambda: len(checkpoint_steps(tmp_path / 'run')) >= 2, process)
  (tmp_path / 'run').rename(tmp_path / 'moved')
  _, err = process.communicate(timeout=TIMEOUT)
  assert process.returncode == 5, err
  assert 'error: ' in one_line(err) and 'removed or moved during this run' in err
  assert not (tmp_path / 'run').exists()
