"""Listing and reading the images of Tiny ImageNet, from a folder and from a zip file."""

import zipfile

import pytest
from support import data_samples as samples

from vrl_jax.data.sources.tiny_imagenet_images import find_images, open_images
from vrl_jax.errors import DataError


@pytest.fixture(params=['folder', 'zip', 'zip without a folder'])
def write_images(request, tmp_path):
  """A function that writes the files of a small Tiny ImageNet and returns the folder or the zip file."""

  def write(contents):
    if request.param == 'folder':
      samples.write_tree(tmp_path / 'tiny-imagenet-200', contents)
      return tmp_path / 'tiny-imagenet-200'
    root = 'tiny-imagenet-200/' if request.param == 'zip' else ''
    with zipfile.ZipFile(tmp_path / 'tiny-imagenet-200.zip', 'w') as archive:
      for name, data in contents.items():
        archive.writestr(root + name, data)
    return tmp_path / 'tiny-imagenet-200.zip'

  return write


def test_consecutive_images_cycle_through_the_classes(write_images, tmp_path):
  contents = samples.tiny_imagenet_files()
  path = write_images(contents)
  assert find_images(tmp_path) == path
  images = open_images(path)
  assert images.class_names == ('n90000000', 'n89999999', 'n89999998')
  assert [image.label for image in images.train] == [0, 1, 2] * 4
  assert [image.label for image in images.test] == [0, 1, 2] * 2
  for image in [*images.train, *images.test]:
    assert images.read(image) == contents[image.name]


def test_images_of_a_class_are_ordered_by_number(write_images):
  contents = samples.tiny_imagenet_files(val=4)
  annotations = contents['val/val_annotations.txt'].splitlines(keepends=True)
  images = open_images(write_images(contents | {'val/val_annotations.txt': b''.join(reversed(annotations))}))
  assert [image.name for image in images.train[:4]] == [
    f'train/{wnid}/images/{wnid}_{number}.JPEG'
    for wnid, number in (('n90000000', 0), ('n89999999', 0), ('n89999998', 0), ('n90000000', 9))
  ]
  assert [image.name[-7:] for image in images.train[::3]] == ['_0.JPEG', '_9.JPEG', '18.JPEG', '27.JPEG']
  assert [image.name for image in images.test] == [
    f'val/images/val_{number}.JPEG' for number in (0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11)
  ]


def test_limit_per_class_keeps_the_first_images(write_images):
  path = write_images(samples.tiny_imagenet_files(val=4))
  every, limited = open_images(path), open_images(path, limit_per_class=2)
  assert (limited.train, limited.test) == (every.train[:6], every.test[:6])


def test_classes_may_have_different_sizes(write_images):
  contents = samples.tiny_imagenet_files(train=3)
  del contents['train/n89999999/images/n89999999_9.JPEG']
  assert [image.label for image in open_images(write_images(contents)).train] == [0, 1, 2, 0, 1, 2, 0, 2]


def test_a_class_without_images_is_a_data_error(write_images):
  contents = samples.tiny_imagenet_files()
  path = write_images({name: data for name, data in contents.items() if 'n89999999_' not in name})
  with pytest.raises(DataError, match='train/n89999999/images: has no images'):
    open_images(path)


@pytest.mark.parametrize(
  ('name', 'data', 'message'),
  [
    ('wnids.txt', None, 'wnids.txt: is missing'),
    ('wnids.txt', b'n1\n', 'line 1: .* must give an image in val/images and a class of wnids.txt'),
    ('wnids.txt', b'\xff', 'wnids.txt, line 1, byte 0: not UTF-8'),
    ('val/val_annotations.txt', None, 'val_annotations.txt: is missing'),
    ('val/val_annotations.txt', b'', 'val/images: has no images'),
    ('val/val_annotations.txt', b'val_0.JPEG\n', "line 1: 'val_0.JPEG' must give"),
    ('val/val_annotations.txt', b'val_0.JPEG\tn90000000\nval_99.JPEG\tn90000000\n', 'line 2: '),
  ],
)
def test_the_error_names_the_file_and_the_line(write_images, name, data, message):
  contents = samples.tiny_imagenet_files()
  if data is None:
    del contents[name]
  else:
    contents[name] = data
  path = write_images(contents)
  with pytest.raises(DataError, match=message) as error:
    open_images(path)
  assert str(error.value).startswith(str(path)) and '\n' not in str(error.value)


def test_an_image_that_is_not_a_jpeg_is_a_data_error(write_images):
  contents = samples.tiny_imagenet_files()
  contents['val/images/val_0.JPEG'] = b'GIF89a'
  images = open_images(write_images(contents))
  with pytest.raises(DataError, match='val_0.JPEG, byte 0: not a JPEG'):
    images.read(images.test[0])


def test_a_damaged_zip_is_a_data_error(tmp_path):
  path = tmp_path / 'tiny-imagenet-200.zip'
  path.write_bytes(b'PK\3\4 and nothing more')
  with pytest.raises(DataError, match='tiny-imagenet-200.zip: cannot be read'):
    open_images(find_images(tmp_path))
