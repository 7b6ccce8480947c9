"""Runs of the training loop inside the test's process, stopped where a test wants it."""

import contextlib
import importlib
import signal

from vrl_jax.checkpoint import Checkpoints


def small_config(**fields):
  """Eight noisy quadratics, 40 steps."""
  config = importlib.import_module('tests.eight_quadratics').get_config()
  config.steps = 40
  with config.ignore_type():
    config.update(fields)
  return config


@contextlib.contextmanager
def signal_at(monkeypatch, step, signum=signal.SIGTERM):
  """Sends the process a signal while it starts the checkpoint of `step`."""
  save = Checkpoints.save

  def save_and_signal(self, at, *args):
    save(self, at, *args)
    if at == step:
      signal.raise_signal(signum)

  with monkeypatch.context() as patch:
    patch.setattr(Checkpoints, 'save', save_and_signal)
    yield
