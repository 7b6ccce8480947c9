"""A run is resumed with the data that it began with, or not at all."""

import json
import re
import shutil

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import assert_same_run, contents
from support.tasks.points import write_points

from vrl_jax.config.fields import default_config
from vrl_jax.errors import ForeignCheckpoint, Interrupted
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.restore import with_checksum


@pytest.fixture
def config(tmp_path):
  """Trains on a file, from initial weights that are stored too."""
  write_points(tmp_path / 'data', seed=0)
  config = default_config()
  config.task = 'support.tasks.points:make_task'
  config.update(data_dir=str(tmp_path / 'data'), workers=4, batch_size=2, devices=1)
  config.update(period=4, steps=24, checkpoint_every=1, init_epochs=1.0)
  return config


@pytest.fixture
def stopped(config, tmp_path, monkeypatch):
  with signal_at(monkeypatch, 12), pytest.raises(Interrupted):
    train_and_evaluate(config, tmp_path / 'run')
  return tmp_path / 'run'


def test_a_run_whose_data_were_replaced_is_refused_until_they_are_back(config, stopped, tmp_path):
  write_points(tmp_path / 'data', seed=1)
  before = contents(stopped)
  with pytest.raises(
    ForeignCheckpoint,
    match=re.escape(f'{stopped}: the checkpoint of step 12 is from other data: data train/c=float32[16, 2] ')
    + r'\w{8} there and float32\[16, 2\] \w{8} now; restore the data to resume, or choose another --workdir$',
  ):
    train_and_evaluate(config, stopped)
  assert contents(stopped) == before
  write_points(tmp_path / 'data', seed=0)
  train_and_evaluate(config, stopped)
  train_and_evaluate(config, tmp_path / 'uninterrupted')
  assert_same_run(stopped, tmp_path / 'uninterrupted')


def test_a_run_is_refused_with_another_data_dir_only_if_the_data_there_differ(config, stopped, tmp_path):
  there, config.data_dir = config.data_dir, str(tmp_path / 'moved')
  write_points(config.data_dir, seed=1)
  with pytest.raises(ForeignCheckpoint, match=re.escape(f'; data_dir={there!r} there and {config.data_dir!r} now; ')):
    train_and_evaluate(config, stopped)
  write_points(config.data_dir, seed=0)
  assert train_and_evaluate(config, stopped)['resumed_from_step'] == 12


def test_a_run_without_a_checkpoint_starts_with_any_data(config, stopped, tmp_path):
  shutil.rmtree(stopped / 'checkpoints')
  write_points(tmp_path / 'data', seed=1)
  assert train_and_evaluate(config, stopped)['resumed_from_step'] == 0
  train_and_evaluate(config, tmp_path / 'new')
  assert_same_run(stopped, tmp_path / 'new')


def test_a_checkpoint_that_does_not_know_its_data_is_of_any(config, stopped):
  path = stopped / 'checkpoints' / '12' / 'about' / 'metadata'
  metadata = json.loads(path.read_text())
  del metadata['data']
  path.write_text(json.dumps(with_checksum(metadata)))
  assert train_and_evaluate(config, stopped)['resumed_from_step'] == 12
