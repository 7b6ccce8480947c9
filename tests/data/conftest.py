"""Every test of the sources has a cache and a TFDS folder of its own, and no network."""

import os
import pathlib
import socket
import sys

import pytest


@pytest.fixture(autouse=True)
def own_folders(monkeypatch, tmp_path):
  monkeypatch.setenv('VRL_JAX_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'tfds'))


@pytest.fixture
def no_network(monkeypatch):
  def refuse(self, address):
    raise OSError(f'blocked by the test: {address}')

  monkeypatch.setattr(socket.socket, 'connect', refuse)
  monkeypatch.setattr(socket.socket, 'connect_ex', refuse)


@pytest.fixture(scope='session')
def real_data() -> pathlib.Path:
  folder = os.environ.get('VRL_JAX_DATA')
  if not folder:
    pytest.skip('real data: set VRL_JAX_DATA to a folder with mnist/, dbpedia_csv/, glove/ and tiny_imagenet/')
  return pathlib.Path(folder)


@pytest.fixture
def builders():
  return pytest.importorskip('vrl_jax.data.builders', exc_type=ImportError)


@pytest.fixture
def tfds(builders):
  """TFDS; the test must not make it import TensorFlow, also on a machine that has it."""
  import tensorflow_datasets

  before = 'tensorflow' in sys.modules
  yield tensorflow_datasets
  assert ('tensorflow' in sys.modules) == before
