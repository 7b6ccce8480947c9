"""profile_steps writes a trace of these steps that JAX's profiler can read, and does not change the run."""

import gzip
import json

import jax
import pytest
from support.inprocess import shared_compilation_cache, small_config  # noqa: F401

from vrl_jax.errors import UserError
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
