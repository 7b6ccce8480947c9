"""Runs of the training loop in the test's process, stopped at a given step."""

import contextlib
import importlib
import signal

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from support.launches import CACHE

from vrl_jax.training.checkpoint import CheckpointWriter

jax.devices()  # starts the backend with the eight devices of conftest.py; otherwise the first run would choose


@pytest.fixture(scope='module', autouse=True)
def shared_compilation_cache():
  """Shares compiled programs between the runs of a module: compilation is most of a short run's time."""
  settings = {
    'jax_compilation_cache_dir': str(CACHE / 'in_process'),
    'jax_persistent_cache_min_compile_time_secs': 0.0,
    'jax_persistent_cache_min_entry_size_bytes': -1,
  }
  before = {name: getattr(jax.config, name) for name in settings}
  _set(settings)
  yield
  _set(before)


def _set(settings):
  for name, value in settings.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()


def small_config(**fields):
  """Eight noisy quadratics, 40 steps."""
  config = importlib.import_module('support.eight_quadratics').get_config()
  config.steps = 40
  with config.ignore_type():
    config.update(fields)
  return config


@contextlib.contextmanager
def signal_at(monkeypatch, step, signum=signal.SIGTERM):
  """Sends this process a signal when it starts to write the checkpoint of `step`."""
  save = CheckpointWriter.save

  def save_and_signal(self, at, *args):
    save(self, at, *args)
    if at == step:
      signal.raise_signal(signum)

  with monkeypatch.context() as patch:
    patch.setattr(CheckpointWriter, 'save', save_and_signal)
    yield
