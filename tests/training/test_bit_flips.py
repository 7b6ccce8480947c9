"""A flipped bit in a checkpoint: the state that was saved is restored, or that of the checkpoint before it."""

import json
import random
import shutil
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from absl import logging
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at, small_config
from support.launches import checkpoint_steps, one_line

from vrl_jax.errors import DataError, Interrupted
from vrl_jax.training.checkpoint import CheckpointWriter, host_shapes
from vrl_jax.training.experiment import make_experiment
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.restore import Restored, read_metadata, read_state, restore_newest


class Run:
  """A stopped run with intact checkpoints, and copies of it with a flipped bit."""

  def __init__(self, folder):
    with signal_at(pytest.MonkeyPatch(), 21), pytest.raises(Interrupted):
      train_and_evaluate(small_config(), folder / 'intact')
    experiment = make_experiment(small_config(), folder)
    self.template = host_shapes(experiment.engine.init(*experiment.model))
    self.config = json.loads(small_config().to_json_best_effort())
    self.intact, self.copy = folder / 'intact', folder / 'copy'
    self.saved = {step: self.read(self.intact, step) for step in checkpoint_steps(self.intact)}

  def read(self, folder, step):
    metadata = read_metadata(folder, step)
    return Restored(step, read_state(folder, step, self.template, metadata), metadata)

  def files(self, step):
    folder = self.intact / 'checkpoints' / str(step)
    return sorted(path.relative_to(self.intact) for path in folder.rglob('*') if path.is_file())

  def restore_and_save(self, name, bit):
    """Restores a copy with a flipped bit, then saves a checkpoint there; returns what was restored."""
    shutil.rmtree(self.copy, ignore_errors=True)
    shutil.copytree(self.intact, self.copy)
    flip(self.copy / name, bit)
    restored = restore_newest(self.copy, self.template, self.config)
    with CheckpointWriter.open(self.copy) as writer:
      writer.save(25, self.saved[21].state, {name: self.saved[21].metadata[name] for name in _GIVEN})
    assert_same_state(self.read(self.copy, 25).state, self.saved[21].state)
    return restored


_GIVEN = ('seconds', 'train_loss', 'config')


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.FATAL)  # as launch.py does
  yield Run(tmp_path_factory.mktemp('flips'))
  logging.set_verbosity(verbosity)


def flip(path, bit):
  content = bytearray(path.read_bytes())
  content[bit // 8] ^= 1 << bit % 8
  path.write_bytes(content)


def random_bits(run, steps, count) -> Iterator:
  """(file, bit) pairs: every file of these checkpoints in turn, at a random bit."""
  rng = random.Random(0)
  files = [name for step in steps for name in run.files(step)]
  for number in range(count):
    name = files[number % len(files)]
    yield name, rng.randrange(8 * (run.intact / name).stat().st_size)


def assert_same_state(state, expected):
  jax.tree.map(np.testing.assert_array_equal, state, expected)


def assert_survives(run, name, bit, capfd):
  capfd.readouterr()
  restored = run.restore_and_save(name, bit)
  err = capfd.readouterr().err
  if restored.step == 21:
    assert err == ''
  else:
    assert restored.step == 17 and 'resuming from step 17' in one_line(err)
  assert_same_state(restored.state, run.saved[restored.step].state)
  assert restored.metadata == run.saved[restored.step].metadata
  return restored.step


def test_a_flipped_bit_in_each_file(run, capfd):
  files = run.files(21)
  steps = [assert_survives(run, name, bit, capfd) for name, bit in random_bits(run, [21], len(files))]
  assert set(steps) == {17, 21}, 'some files are needed and some are not'


@pytest.mark.slow
def test_300_flipped_bits(run, capfd):
  steps = [assert_survives(run, name, bit, capfd) for name, bit in random_bits(run, [21, 17], 300)]
  print(f'restored the newest: {steps.count(21)}, the one before it: {steps.count(17)}')


def test_flipped_bits_in_the_metadata(run, tmp_path):
  """They are refused or, as where `1e-05` becomes `1E-05`, the same."""
  folder = tmp_path / 'checkpoints' / '21'
  shutil.copytree(run.intact / 'checkpoints' / '21', folder)
  path = folder / 'about' / 'metadata'
  content, rng, refused = path.read_bytes(), random.Random(0), 0
  for byte in range(0, len(content), 4):
    path.write_bytes(content)
    flip(path, 8 * byte + rng.randrange(8))
    try:
      assert read_metadata(tmp_path, 21) == run.saved[21].metadata, f'byte {byte}'
    except DataError:
      refused += 1
  assert refused > 0.9 * len(content) / 4
