"""profile_steps writes a trace of these steps that JAX's profiler can read, and does not change the run."""

import gzip
import json
import shutil

import jax
import pytest
from jax._src import profiler
from support.inprocess import shared_compilation_cache, small_config  # noqa: F401
from support.mounts import mounted as mounted

from vrl_jax.errors import StorageError, UserError
from vrl_jax.training.loop import train_and_evaluate


def traced(folder):
  """The names of the events of the one trace in a run directory."""
  (trace,) = folder.glob('profile/plugins/profile/*/*.trace.json.gz')
  assert list(trace.parent.glob('*.xplane.pb'))
  return [event.get('name', '') for event in json.loads(gzip.decompress(trace.read_bytes()))['traceEvents']]


def test_the_trace_and_the_same_run(tmp_path, capsys, monkeypatch):
  calls = []
  for name in ('start_trace', 'stop_trace'):
    original = getattr(jax.profiler, name)
    monkeypatch.setattr(jax.profiler, name, lambda *args, o=original, n=name: (calls.append(n), o(*args)))
  plain = train_and_evaluate(small_config(), tmp_path / 'plain')
  assert calls == []
  profiled = train_and_evaluate(small_config(profile_steps=(9, 17)), tmp_path / 'profiled')
  assert calls == ['start_trace', 'stop_trace']
  assert profiled['train_loss'] == plain['train_loss']
  assert not (tmp_path / 'plain' / 'profile').exists()
  assert any('all-reduce' in name for name in traced(tmp_path / 'profiled'))
  assert 'profile: the profile of steps 9 to 17\n' in capsys.readouterr().out


@pytest.mark.parametrize('fields', [{'log_every_step': True}, {'profile_steps': (38, 100)}])
def test_logged_steps_and_the_end_of_the_run(tmp_path, fields):
  config = small_config(**{'profile_steps': (0, 1)} | fields)
  assert train_and_evaluate(config, tmp_path)['status'] == 'finished'
  assert traced(tmp_path)


def test_steps_that_the_run_does_not_have(tmp_path):
  with pytest.raises(UserError, match=r'profile_steps=\(40, 50\): the run has 40 steps, numbered from 0'):
    train_and_evaluate(small_config(profile_steps=(40, 50)), tmp_path)


@pytest.mark.parametrize('steps', [(5,), (5, 5), (6, 5), (-1, 5), (0.5, 5), (1, 2, 3), ('a', 'b'), (True, 5)])
def test_bad_steps(tmp_path, steps):
  with pytest.raises(UserError, match='profile_steps=.*, must be .first, last., integers with 0 <= first < last'):
    train_and_evaluate(small_config(profile_steps=steps), tmp_path)


@pytest.fixture
def profiler_that_may_fail():
  """JAX takes a trace that could not be written for one that is still running."""
  yield
  profiler._profile_state.reset()


def test_a_full_disk(mounted, profiler_that_may_fail):
  run = mounted('size=100k') / 'run'
  with pytest.raises(StorageError, match=f'^{run}/profile: the profile cannot be written .No space left on device.$'):
    train_and_evaluate(small_config(profile_steps=(9, 17), checkpoint_every=0), run)


@pytest.mark.parametrize('moment', ['start_trace', 'stop_trace'])
def test_a_directory_that_was_removed_is_not_made_again(moment, tmp_path, monkeypatch, profiler_that_may_fail):
  run, original = tmp_path / 'run', getattr(jax.profiler, moment)
  monkeypatch.setattr(jax.profiler, moment, lambda *args: (shutil.rmtree(run), original(*args)))
  with pytest.raises(StorageError, match=f'^{run}: the directory was removed or moved during this run'):
    train_and_evaluate(small_config(profile_steps=(9, 17), checkpoint_every=0), run)
  assert not run.exists()
