import os

import numpy as np
import pytest

from vrl_jax.data.cache import cached
from vrl_jax.system.storage import cache_dir


class Source:
  """A file and a `build` function that counts its calls."""

  def __init__(self, path):
    self.path = path
    self.calls = 0
    path.write_bytes(b'first')

  def build(self):
    self.calls += 1
    return {'a': np.arange(self.calls), 'text': np.array('é')}

  def load(self, **settings):
    return cached('sample', self.build, sources=[self.path], settings=settings)


@pytest.fixture
def source(tmp_path):
  return Source(tmp_path / 'source')


def entries():
  return sorted(cache_dir().iterdir())


def test_a_source_is_read_once(source):
  first, again = source.load(), source.load()
  assert source.calls == 1
  assert again.keys() == first.keys() == {'a', 'text'}
  np.testing.assert_array_equal(again['a'], first['a'])
  assert again['text'] == 'é'


def test_the_entry_of_a_changed_source_is_replaced(source):
  source.load()
  source.path.write_bytes(b'second one')
  assert source.load()['a'].size == 2
  os.utime(source.path, ns=(1, 1))  # the same size, another modification time
  assert source.load()['a'].size == 3
  assert len(entries()) == 1


def test_different_settings_have_different_entries(source):
  assert [source.load(k=1)['a'].size, source.load(k=2)['a'].size, source.load(k=1)['a'].size] == [1, 2, 1]


@pytest.mark.parametrize(
  'damage',
  [
    lambda data: b'',
    lambda data: data[:-30],
    lambda data: data.replace(b'\xe9', b'\xe8'),
    lambda data: data.replace(b'text', b'tixt'),
  ],
)
def test_a_damaged_entry_is_rebuilt(source, damage):
  source.load()
  (entry,) = entries()
  entry.write_bytes(damage(entry.read_bytes()))
  assert source.load()['a'].size == 2
  assert source.load()['a'].size == 2  # from the new entry
  assert entries() == [entry]


def test_a_pickled_entry_is_not_loaded(source):
  source.load()
  (entry,) = entries()
  np.savez(entry, a=np.array([object()], dtype=object))
  assert source.load()['a'].size == 2


def test_an_unwritable_folder_is_not_an_error(source, monkeypatch, tmp_path):
  (tmp_path / 'file').touch()
  monkeypatch.setenv('VRL_JAX_CACHE', str(tmp_path / 'file' / 'cache'))
  assert [source.load()['a'].size, source.load()['a'].size] == [1, 2]


def test_a_failed_write_leaves_no_temporary_file(source, monkeypatch):
  def fail(*args, **kwargs):
    raise OSError('disk full')

  monkeypatch.setattr(np, 'savez', fail)
  source.load()
  assert entries() == []
