"""Compressed files that are a thousand times larger than on disk: refused without holding them in memory."""

import gzip
import io
import tracemalloc
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support import data_samples as samples

from vrl_jax.data.sources import files
from vrl_jax.data.sources.dbpedia_csv import read_rows
from vrl_jax.data.sources.glove import read_package, read_text
from vrl_jax.data.sources.idx import read_idx
from vrl_jax.data.sources.npz import read_npz
from vrl_jax.data.sources.tiny_imagenet_images import open_images
from vrl_jax.errors import DataError

SIZE = 50_000_000
ENDLESS = {
  'IDX': (samples.idx(np.arange(10)), lambda path: read_idx(path, (None,)), 'has more values, must have 10'),
  'IDX, header': (
    bytes([0, 0, 8, 1, 255, 255, 255, 255]),
    lambda path: read_idx(path, (None,)),
    'has 4294967295 values, must have n',
  ),
  'CSV': (b'1,"title","', lambda path: list(read_rows(path)), 'line 1: is longer than 1,048,576 bytes'),
  'GloVe': (samples.glove_bytes() + b'cat ', read_text, 'line 7: is longer than 1,048,576 bytes'),
}


@pytest.fixture
def bounded_memory():
  tracemalloc.start()
  yield
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < SIZE / 5


@pytest.mark.parametrize('case', ENDLESS)
def test_zeros_without_end(case, tmp_path, bounded_memory):
  start, read, message = ENDLESS[case]
  path = tmp_path / 'bomb.gz'
  with gzip.open(path, 'wb', compresslevel=1) as file:
    file.write(start)
    for _ in range(50):
      file.write(bytes(SIZE // 50))
  with pytest.raises(DataError, match=message):
    read(path)


def npz_bomb(path, rest):
  array = io.BytesIO()
  np.save(array, np.arange(3))
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive, archive.open('x.npy', 'w') as member:
    member.write(array.getvalue())
    for _ in range(50):
      member.write(bytes(rest // 50))


def test_zeros_after_an_array(tmp_path, bounded_memory):
  npz_bomb(tmp_path / 'bomb.npz', SIZE)
  with pytest.raises(DataError, match='array x: has bytes after its values'):
    read_npz(tmp_path / 'bomb.npz')


def test_too_many_bytes_in_an_npz(tmp_path, monkeypatch):
  monkeypatch.setattr(files, 'MAX_INFLATED', 100_000)
  npz_bomb(tmp_path / 'bomb.npz', 200_000)
  with pytest.raises(DataError, match='bytes after decompression, must have at most 100,000'):
    read_npz(tmp_path / 'bomb.npz')


def test_an_image_without_end(tmp_path, bounded_memory):
  path = tmp_path / 'tiny-imagenet-200.zip'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('val/val_annotations.txt', '')
    with archive.open('wnids.txt', 'w') as member:
      for _ in range(50):
        member.write(bytes(SIZE // 50))
  with pytest.raises(DataError, match='wnids.txt: cannot be read .*has 50,000,000 bytes after decompression'):
    open_images(path)


def test_more_words_than_vectors(tmp_path):
  np.save(tmp_path / 'vectors.npy', np.zeros((2, 50), np.float32))
  words = pyarrow.table({'word': pyarrow.repeat('the', 5_000_000)})
  pyarrow.parquet.write_table(words, tmp_path / 'words.parquet')
  with pytest.raises(DataError, match=r'\(2, 50\) for 5000000 words'):
    read_package(tmp_path / 'vectors.npy', tmp_path / 'words.parquet')


def test_too_many_good_lines(tmp_path, monkeypatch):
  monkeypatch.setattr(files, 'MAX_INFLATED', 100_000)
  path = tmp_path / 'train.csv.gz'
  path.write_bytes(gzip.compress(b'1,"title","text"\n' * 10_000))
  with pytest.raises(DataError, match='has more than 100,000 bytes after decompression'):
    list(read_rows(path))
