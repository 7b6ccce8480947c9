"""Fixtures of the tests that read data sets: temporary data directories, and no network."""

import socket

import pytest


@pytest.fixture(autouse=True)
def temporary_folders(monkeypatch, tmp_path):
  """The cache and TFDS' data directory in the test's folder."""
  monkeypatch.setenv('VRL_JAX_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'tfds'))


@pytest.fixture
def no_network(monkeypatch):
  """Lets every connection fail."""

  def refuse(self, address):
    raise OSError(f'blocked by the test: {address}')

  monkeypatch.setattr(socket.socket, 'connect', refuse)
  monkeypatch.setattr(socket.socket, 'connect_ex', refuse)
