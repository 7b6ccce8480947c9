import zipfile

import numpy as np
import pytest
from support import data_samples as samples

from vrl_jax.data.sources import tiny_imagenet
from vrl_jax.data.sources.npz import read_npz
from vrl_jax.errors import DataError


@pytest.mark.parametrize('sub_folder', ['tiny_imagenet', '.'])
def test_the_features_are_loaded(tmp_path, sub_folder):
  samples.write_features(tmp_path / sub_folder)
  splits = tiny_imagenet.load_tiny_imagenet_features(tmp_path)
  assert splits.train['feature'].dtype == np.float16 and splits.train['label'].dtype == np.int32
  np.testing.assert_array_equal(splits.train['feature'], samples.features()['x_train'])
  np.testing.assert_array_equal(splits.test['label'], [199, 0])
  assert splits.class_names == tuple(str(i) for i in range(200))


def test_class_names_are_read_from_wnids(tmp_path):
  samples.write_features(tmp_path)
  names = [f'n{i}' for i in range(200, 0, -1)]
  (tmp_path / 'wnids.txt').write_text('\n'.join(names))
  assert tiny_imagenet.load_tiny_imagenet_features(tmp_path).class_names == tuple(names)
  (tmp_path / 'wnids.txt').write_text('n1')
  with pytest.raises(DataError, match='wnids.txt: has 1 class names, must have 200'):
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)


NOT_FINITE = np.zeros((5000, 2048), np.float16)
NOT_FINITE[4500, 7] = np.inf


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'x_train': None}, 'has no array x_train .it has y_train, x_test, y_test'),
    ({'x_test': np.zeros((2, 2048), np.float32)}, r'array x_test: is float32 \(2, 2048\), must be float16'),
    ({'x_test': np.zeros((2, 2047), np.float16)}, r'array x_test: is float16 \(2, 2047\)'),
    ({'x_test': np.zeros(2048, np.float16)}, r'array x_test: is float16 \(2048,\)'),
    ({'x_test': np.zeros((0, 2048), np.float16), 'y_test': np.zeros(0, int)}, r'array x_test: is float16 \(0, 2048\)'),
    ({'y_train': np.zeros(5)}, r'array y_train: is float64 \(5,\), must be 5 integers'),
    ({'y_train': np.zeros(4, int)}, r'array y_train: is int64 \(4,\), must be 5 integers'),
    ({'y_train': np.array([0, 1, 200, 3, 4])}, r'array y_train: label 200 at row 2 is not in 0\.\.199'),
    ({'y_train': np.array([0, -1, 2, 3, 4])}, 'label -1 at row 1'),
    ({'y_train': np.array([{}] * 5, dtype=object)}, 'array y_train: cannot be read .*pickled'),
    ({'x_test': NOT_FINITE, 'y_test': np.zeros(5000, int)}, 'array x_test, row 4500: a feature is not finite'),
  ],
)
def test_the_error_names_the_array_and_the_row(tmp_path, change, message):
  arrays = {name: array for name, array in {**samples.features(), **change}.items() if array is not None}
  path = samples.write_features(tmp_path, arrays)
  with pytest.raises(DataError, match=message) as error:
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)
  assert str(error.value).startswith(str(path)) and '\n' not in str(error.value)


@pytest.mark.parametrize('data', [b'', b'nonsense', b'PK\3\4', b'\x80\x04N.'])
def test_a_file_that_is_not_an_npz_is_a_data_error(tmp_path, data):
  path = samples.write_features(tmp_path)
  path.write_bytes(data)
  with pytest.raises(DataError, match='not a readable npz file'):
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)


def test_a_flipped_byte_in_the_last_value_is_found(tmp_path):
  """`np.load` does not find it, because it stops reading before the checksum."""
  path = tmp_path / 'a.npz'
  np.savez(path, a=np.arange(100))
  data = bytearray(path.read_bytes())
  data[data.index(np.arange(100).tobytes()) + 796] ^= 1
  path.write_bytes(data)
  with pytest.raises(DataError, match='array a: cannot be read .*CRC'):
    read_npz(path)


def test_bytes_after_the_values_are_found(tmp_path):
  path = tmp_path / 'a.npz'
  np.savez(path, a=np.arange(3))
  with zipfile.ZipFile(path) as archive:
    data = archive.read('a.npy')
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('a.npy', data + b'more')
  with pytest.raises(DataError, match='array a: has bytes after its values'):
    read_npz(path)


@pytest.mark.usefixtures('no_network')
def test_the_error_names_the_folders_searched_and_the_command(tmp_path):
  for data_dir in (None, tmp_path):
    with pytest.raises(DataError, match=r'not found: searched .* download .*zip and run .*extract_features --images'):
      tiny_imagenet.load_tiny_imagenet_features(data_dir)
  samples.write_tree(tmp_path / 'tiny_imagenet' / 'tiny-imagenet-200', samples.tiny_imagenet_files())
  with pytest.raises(
    DataError, match='the images are in .*tiny-imagenet-200: run .*--images .*tiny-imagenet-200 --output'
  ):
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)
