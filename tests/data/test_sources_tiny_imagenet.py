import zipfile

import numpy as np
import pytest
import samples

from vrl_jax.data import tiny_imagenet
from vrl_jax.data.npz import read_npz
from vrl_jax.data.tiny_imagenet_images import TinyImages, find_images
from vrl_jax.errors import DataError


@pytest.mark.parametrize('sub_folder', ['tiny_imagenet', '.'])
def test_loads_the_features(tmp_path, sub_folder):
  samples.write_features(tmp_path / sub_folder)
  splits = tiny_imagenet.load_tiny_imagenet_features(tmp_path)
  assert splits.train['feature'].dtype == np.float16 and splits.train['label'].dtype == np.int32
  np.testing.assert_array_equal(splits.train['feature'], samples.features()['x_train'])
  np.testing.assert_array_equal(splits.test['label'], [199, 0])
  assert splits.class_names == tuple(str(i) for i in range(200))


def test_class_names_come_from_wnids(tmp_path):
  samples.write_features(tmp_path)
  names = [f'n{i}' for i in range(200, 0, -1)]
  (tmp_path / 'wnids.txt').write_text('\n'.join(names))
  assert tiny_imagenet.load_tiny_imagenet_features(tmp_path).class_names == tuple(names)
  (tmp_path / 'wnids.txt').write_text('n1')
  with pytest.raises(DataError, match='wnids.txt: 1 class names where 200 are expected'):
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)


NOT_FINITE = np.zeros((5000, 2048), np.float16)
NOT_FINITE[4500, 7] = np.inf


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'x_train': None}, 'has no array named x_train .it has y_train, x_test, y_test'),
    ({'x_test': np.zeros((2, 2048), np.float32)}, r'array x_test: float32 \(2, 2048\) where float16'),
    ({'x_test': np.zeros((2, 2047), np.float16)}, r'array x_test: float16 \(2, 2047\)'),
    ({'x_test': np.zeros(2048, np.float16)}, r'array x_test: float16 \(2048,\)'),
    ({'x_test': np.zeros((0, 2048), np.float16), 'y_test': np.zeros(0, int)}, r'array x_test: float16 \(0, 2048\)'),
    ({'y_train': np.zeros(5)}, r'array y_train: float64 \(5,\) where 5 integers'),
    ({'y_train': np.zeros(4, int)}, r'array y_train: int64 \(4,\) where 5 integers'),
    ({'y_train': np.array([0, 1, 200, 3, 4])}, r'array y_train: label 200 at row 2 is not in 0\.\.199'),
    ({'y_train': np.array([0, -1, 2, 3, 4])}, 'label -1 at row 1'),
    ({'y_train': np.array([{}] * 5, dtype=object)}, 'array y_train: cannot be read .*pickled'),
    ({'x_test': NOT_FINITE, 'y_test': np.zeros(5000, int)}, 'array x_test, row 4500: a feature is not a finite'),
  ],
)
def test_says_what_is_wrong_in_the_features_and_where(tmp_path, change, message):
  arrays = {name: array for name, array in {**samples.features(), **change}.items() if array is not None}
  path = samples.write_features(tmp_path, arrays)
  with pytest.raises(DataError, match=message) as error:
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)
  assert str(error.value).startswith(str(path)) and '\n' not in str(error.value)


@pytest.mark.parametrize('data', [b'', b'nonsense', b'PK\3\4', b'\x80\x04N.'])
def test_what_is_not_an_npz_is_a_data_error(tmp_path, data):
  path = samples.write_features(tmp_path)
  path.write_bytes(data)
  with pytest.raises(DataError, match='not a readable npz file'):
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)


def test_a_flipped_byte_of_the_last_value_is_found(tmp_path):
  """`np.load` lets it pass: it never reads as far as the checksum."""
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
  with pytest.raises(DataError, match='array a: 4 bytes too many'):
    read_npz(path)


@pytest.mark.usefixtures('no_network')
def test_says_where_it_looked_and_what_to_run(tmp_path):
  for data_dir in (None, tmp_path):
    with pytest.raises(
      DataError, match=r'not found: looked for .* download .*zip and run: .*extract_features --images'
    ):
      tiny_imagenet.load_tiny_imagenet_features(data_dir)
  samples.write_tree(tmp_path / 'tiny_imagenet' / 'tiny-imagenet-200', samples.tiny_imagenet_files())
  with pytest.raises(DataError, match='the images are in .*tiny-imagenet-200; .*--images .*tiny-imagenet-200 --output'):
    tiny_imagenet.load_tiny_imagenet_features(tmp_path)


@pytest.fixture(params=['folder', 'zip'])
def put(request, tmp_path):
  """A function that writes the files of a small Tiny ImageNet and returns where."""

  def write(contents):
    if request.param == 'folder':
      samples.write_tree(tmp_path / 'tiny-imagenet-200', contents)
    else:
      with zipfile.ZipFile(tmp_path / 'tiny-imagenet-200.zip', 'w') as archive:
        for name, data in contents.items():
          archive.writestr(f'tiny-imagenet-200/{name}', data)
    return find_images(tmp_path)

  return write


def test_lists_the_images_in_rounds_over_the_classes(put):
  contents = samples.tiny_imagenet_files()
  images = TinyImages(put(contents))
  assert images.class_names == ('n90000000', 'n89999999', 'n89999998')
  assert [image.label for image in images.train] == [0, 1, 2] * 4
  assert [image.label for image in images.test] == [0, 1, 2] * 2
  assert [image.name[-7:] for image in images.train[::3]] == ['_0.JPEG', '_9.JPEG', '18.JPEG', '27.JPEG']
  for image in [*images.train, *images.test]:
    assert images.read(image) == contents[image.name]


@pytest.mark.parametrize(
  ('name', 'data', 'message'),
  [
    ('wnids.txt', None, 'wnids.txt: cannot be read|not found'),
    ('wnids.txt', b'n1\n', 'line 1: .*does not give an image and its class'),
    ('wnids.txt', b'\xff', 'wnids.txt, line 1, byte 0: not UTF-8'),
    ('val/val_annotations.txt', None, 'val_annotations.txt: cannot be read'),
    ('val/val_annotations.txt', b'', 'has no images'),
    ('val/val_annotations.txt', b'val_0.JPEG\n', "line 1: 'val_0.JPEG' does not give"),
    ('val/val_annotations.txt', b'val_0.JPEG\tn90000000\nval_99.JPEG\tn90000000\n', 'line 2: '),
  ],
)
def test_says_what_is_wrong_in_the_images_and_where(put, name, data, message):
  contents = samples.tiny_imagenet_files()
  if data is None:
    del contents[name]
  else:
    contents[name] = data
  path = put(contents)
  if path is None:  # a folder without wnids.txt is not recognised as one
    return
  with pytest.raises(DataError, match=message):
    TinyImages(path)


def test_what_is_not_a_jpeg_is_a_data_error(put):
  contents = samples.tiny_imagenet_files()
  contents['val/images/val_0.JPEG'] = b'GIF89a'
  images = TinyImages(put(contents))
  with pytest.raises(DataError, match='val_0.JPEG, byte 0: not a JPEG'):
    images.read(images.test[0])


def test_a_damaged_zip_is_a_data_error(tmp_path):
  path = tmp_path / 'tiny-imagenet-200.zip'
  path.write_bytes(b'PK\3\4 and nothing more')
  with pytest.raises(DataError, match='tiny-imagenet-200.zip: cannot be read'):
    TinyImages(find_images(tmp_path))
