"""For any bytes, a reader returns a valid result or raises DataError."""

import gzip
import io
import math
import pathlib
import tempfile

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from support import data_samples as samples

from vrl_jax.data.sources.dbpedia_csv import read_rows
from vrl_jax.data.sources.glove import read_text
from vrl_jax.data.sources.idx import read_idx
from vrl_jax.data.sources.npz import read_npz
from vrl_jax.errors import DataError


def _npz(save) -> bytes:
  file = io.BytesIO()
  save(file, x=samples.features(2)['x_train'][:, :40], y=np.arange(2), name=np.array('é'))
  return file.getvalue()


def _valid_idx(array):
  return array.dtype == np.uint8 and array.ndim == 3 and array.shape[1:] == (28, 28) and len(array) > 0


def _valid_rows(rows):
  return len(rows) > 0 and all(row.label in range(14) and isinstance(row.title + row.text, str) for row in rows)


def _valid_glove(glove):
  return (
    len(set(glove.words)) == len(glove.words) == len(glove.vectors)
    and glove.vectors.shape[1:] == (50,)
    and all(map(math.isfinite, glove.vectors.flat))
  )


# A reader, a function that checks its result, and a valid file. The compressed files have a checksum of the data.
READERS = {
  'idx': (lambda path: read_idx(path, (None, 28, 28)), _valid_idx, samples.idx(samples.mnist_arrays(2)[0])),
  'csv': (lambda path: list(read_rows(path)), _valid_rows, samples.csv_bytes(samples.dbpedia_rows(8))),
  'glove': (read_text, _valid_glove, samples.glove_bytes()),
}
COMPRESSED = {name: (read, gzip.compress(data, mtime=0)) for name, (read, _, data) in READERS.items()}
read_all = lambda path: read_npz(path, ['x', 'y', 'name'])
COMPRESSED |= {'npz': (read_all, _npz(np.savez)), 'npz_compressed': (read_all, _npz(np.savez_compressed))}


def run(read, data):
  """The result of the reader, or None if it raises a DataError of one line."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'file'
    path.write_bytes(data)
    try:
      return read(path)
    except DataError as error:
      assert str(path) in str(error) and '\n' not in str(error)
      return None


def equal(a, b) -> bool:
  if isinstance(a, np.ndarray):
    return a.dtype == b.dtype and np.array_equal(a, b)
  if isinstance(a, dict):
    return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
  if isinstance(a, tuple | list):
    return len(a) == len(b) and all(map(equal, a, b))
  return a == b


@st.composite
def damaged(draw, data: bytes) -> bytes:
  """`data` truncated, or with bytes changed or inserted."""
  place = st.one_of(st.integers(0, min(60, len(data) - 1)), st.integers(0, len(data) - 1))
  match draw(st.sampled_from(['truncate', 'flip', 'insert'])):
    case 'truncate':
      return data[: draw(place)]
    case 'flip':
      changed = bytearray(data)
      for at in draw(st.lists(place, min_size=1, max_size=3)):
        changed[at] ^= draw(st.integers(1, 255))
      return bytes(changed)
    case _:
      at = draw(place)
      return data[:at] + draw(st.binary(min_size=1, max_size=6)) + data[at:]


fuzz = hypothesis.settings(max_examples=150, deadline=None)


@pytest.mark.parametrize('name', [*READERS, 'npz'])
@fuzz
@hypothesis.given(data=st.data())
def test_random_bytes_give_a_valid_result_or_an_error(name, data):
  read, is_valid, good = (READERS | {'npz': (read_npz, lambda arrays: arrays == {}, _npz(np.savez))})[name]
  start = good[: data.draw(st.sampled_from([0, 2, 4, 16, 30]))]
  result = run(read, start + data.draw(st.binary(max_size=80)))
  assert result is None or is_valid(result)


@pytest.mark.parametrize('name', READERS)
@fuzz
@hypothesis.given(data=st.data())
def test_damaged_uncompressed_files_give_a_valid_result_or_an_error(name, data):
  read, is_valid, good = READERS[name]
  result = run(read, data.draw(damaged(good)))
  assert result is None or is_valid(result)


@pytest.mark.parametrize('name', COMPRESSED)
@fuzz
@hypothesis.given(data=st.data())
def test_damaged_compressed_files_give_the_right_result_or_an_error(name, data):
  read, good = COMPRESSED[name]
  result = run(read, data.draw(damaged(good)))
  assert result is None or equal(result, run(read, good))


@fuzz
@hypothesis.given(
  st.lists(st.tuples(st.integers(1, 14), st.text(max_size=20), st.text(max_size=40)), min_size=1, max_size=5)
)
def test_any_text_is_read_back_from_csv(rows):
  data = samples.csv_bytes(rows)
  assert [(row.label + 1, row.title, row.text) for row in run(READERS['csv'][0], data)] == rows
