"""Fixtures of the data tests: temporary data directories, no network, the real data and TFDS."""

import os
import pathlib
import sys

import pytest
from support.data_fixtures import no_network as no_network
from support.data_fixtures import temporary_folders as temporary_folders


@pytest.fixture(scope='session')
def real_data() -> pathlib.Path:
  folder = os.environ.get('VRL_JAX_DATA')
  if not folder:
    pytest.skip('set VRL_JAX_DATA to a folder with mnist/, dbpedia_csv/, glove/ and tiny_imagenet/')
  return pathlib.Path(folder)


@pytest.fixture
def builders():
  return pytest.importorskip('vrl_jax.data.tfds.builders', exc_type=ImportError)


@pytest.fixture
def tfds(builders):
  """TFDS; the test must not import TensorFlow, even if it is installed."""
  import tensorflow_datasets

  before = 'tensorflow' in sys.modules
  yield tensorflow_datasets
  assert ('tensorflow' in sys.modules) == before
