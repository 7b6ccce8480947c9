"""The images of Tiny ImageNet, from the original zip file or its unpacked folder."""

import contextlib
import itertools
import os
import pathlib
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from vrl_jax.data.sources import files
from vrl_jax.data.sources.archives import TINY_IMAGENET
from vrl_jax.errors import DataError

FOLDER = 'tiny_imagenet'
_STEM = 'tiny-imagenet-200'
_CLASSES, _ANNOTATIONS = 'wnids.txt', 'val/val_annotations.txt'
_TRAIN_IMAGE = re.compile(r'train/([^/]+)/images/[^/]+\.jpe?g', re.IGNORECASE)
_JPEG = b'\xff\xd8\xff'
_MAX_MEMBER = 1 << 24  # bytes; the largest, the names of WordNet's classes, has 2.7e6
_AGAIN = f'download {TINY_IMAGENET.url} again'


class Image(NamedTuple):
  """An image that has not been read.

  Attributes:
    name: its path inside the data set.
    label: its class.

  >>> Image('train/n01443537/images/n01443537_0.JPEG', label=0).label
  0
  """

  name: str
  label: int


class TinyImages(NamedTuple):
  """The labelled images; `open_images` makes one.

  A label is the index of the class in `wnids.txt`. Consecutive images cycle through the classes: in the full data
  set, image i of a split has the label i mod 200.

  Attributes:
    class_names: the WordNet ids, in the order of `wnids.txt`.
    train: the training images.
    test: the images of the validation set (those of the test set have no labels).
    path: the zip file or the folder.
    read_file: returns the content of a file by its path inside the data set.

  >>> TinyImages(('n01',), [], [Image('val/images/val_0.JPEG', 0)], pathlib.Path('x.zip'), lambda name: _JPEG).test
  [Image(name='val/images/val_0.JPEG', label=0)]
  """

  class_names: tuple[str, ...]
  train: list[Image]
  test: list[Image]
  path: pathlib.Path
  read_file: Callable[[str], bytes]

  def read(self, image: Image) -> bytes:
    """The JPEG bytes of an image; raises DataError if they cannot be read."""
    data = self.read_file(image.name)
    if not data.startswith(_JPEG):
      raise DataError(f'{self.path / image.name}, byte 0: not a JPEG image: {_AGAIN}')
    return data


def open_images(path: str | os.PathLike, limit_per_class: int | None = None) -> TinyImages:
  """Lists the images without unpacking or decoding them.

  Args:
    path: `tiny-imagenet-200.zip` or the unpacked folder.
    limit_per_class: keep only the first images of each class in each split; None keeps all.

  Raises:
    DataError: files are missing or damaged.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   with zipfile.ZipFile(pathlib.Path(folder, 'tiny-imagenet-200.zip'), 'w') as archive:
  ...     archive.writestr('tiny-imagenet-200/wnids.txt', 'n02\\nn01\\n')
  ...     for name in ('train/n01/images/n01_0.JPEG', 'train/n02/images/n02_0.JPEG', 'val/images/val_0.JPEG'):
  ...       archive.writestr(f'tiny-imagenet-200/{name}', _JPEG)
  ...     archive.writestr('tiny-imagenet-200/val/val_annotations.txt', 'val_0.JPEG\\tn02\\t0\\t0\\t62\\t57\\n')
  ...   images = open_images(find_images(folder))
  ...   [image.name for image in images.train], images.test[0].label, images.read(images.test[0])
  (['train/n02/images/n02_0.JPEG', 'train/n01/images/n01_0.JPEG'], 0, b'\\xff\\xd8\\xff')
  """
  path = pathlib.Path(path)
  names, read_file = _open_zip(path) if path.is_file() else _open_folder(path)
  for needed in (_CLASSES, _ANNOTATIONS):
    if needed not in names:
      raise DataError(f'{path / needed}: is missing: {_AGAIN}')
  text = lambda name: files.decode(read_file(name), path / name, 1)
  class_names = tuple(text(_CLASSES).split())
  label_of = {wnid: label for label, wnid in enumerate(class_names)}
  train = [
    Image(name, label_of[match[1]])
    for name in names
    if (match := _TRAIN_IMAGE.fullmatch(name)) and match[1] in label_of
  ]
  test = []
  for number, line in enumerate(text(_ANNOTATIONS).splitlines(), 1):
    file, wnid, *_ = [*line.split('\t'), '']
    if wnid not in label_of or f'val/images/{file}' not in names:
      raise DataError(
        f'{path / _ANNOTATIONS}, line {number}: {line[:60]!r} must give an image in val/images and a class of '
        f'{_CLASSES}: {_AGAIN}'
      )
    test.append(Image(f'val/images/{file}', label_of[wnid]))
  if not test:
    raise DataError(f'{path / "val/images"}: has no images: {_AGAIN}')
  if empty := label_of.keys() - {class_names[image.label] for image in train}:
    raise DataError(f'{path / "train" / min(empty) / "images"}: has no images: {_AGAIN}')
  return TinyImages(
    class_names, _round_robin(train, limit_per_class), _round_robin(test, limit_per_class), path, read_file
  )


def find_images(data_dir: str | os.PathLike | None) -> pathlib.Path | None:
  """Finds the zip file or the unpacked folder in `data_dir/tiny_imagenet` or `data_dir`; `data_dir` may be that folder.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   pathlib.Path(folder, 'tiny-imagenet-200.zip').touch()
  ...   find_images(folder).name
  'tiny-imagenet-200.zip'
  """
  root = files.as_folder(data_dir)
  if root is None:
    return None
  for place in (root / FOLDER, root):
    for path in (place / _STEM, place, place / f'{_STEM}.zip'):
      if (path / _CLASSES).is_file() and (path / 'train').is_dir() or path.suffix == '.zip' and path.is_file():
        return path
  return None


def _open_folder(path: pathlib.Path) -> tuple[set[str], Callable[[str], bytes]]:
  def read(name):
    with _data_errors(path / name):
      return (path / name).read_bytes()

  return {file.relative_to(path).as_posix() for file in path.rglob('*')}, read


def _open_zip(path: pathlib.Path) -> tuple[set[str], Callable[[str], bytes]]:
  with _data_errors(path):
    archive = zipfile.ZipFile(path)
    members = archive.namelist()
  root = next((name.removesuffix(_CLASSES) for name in members if f'/{name}'.endswith(f'/{_CLASSES}')), '')

  def read(name):
    with _data_errors(path / name):
      size = archive.getinfo(root + name).file_size  # zipfile reads no more than this
      if size > _MAX_MEMBER:
        raise ValueError(f'has {size:,} bytes after decompression, must have at most {_MAX_MEMBER:,}')
      return archive.read(root + name)

  return {name.removeprefix(root) for name in members}, read


@contextlib.contextmanager
def _data_errors(path: pathlib.Path) -> Iterator[None]:
  try:
    yield
  except Exception as error:  # a damaged zip can raise nearly anything: struct, zlib, runtime, unicode errors
    raise DataError(f'{path}: cannot be read ({error}): {_AGAIN}') from error


def _round_robin(images: Iterable[Image], limit_per_class: int | None) -> list[Image]:
  """Orders images by their numbers within each class and then takes one of each class in turn."""
  by_class: dict[int, list[Image]] = {}
  for image in sorted(images, key=lambda image: _split_numbers(image.name)):
    by_class.setdefault(image.label, []).append(image)
  rounds = itertools.zip_longest(*(by_class[label][:limit_per_class] for label in sorted(by_class)))
  return [image for one in rounds for image in one if image]


def _split_numbers(name: str) -> list[str | int]:
  return [int(piece) if piece.isdecimal() else piece for piece in re.split(r'(\d+)', name)]
