"""The images of Tiny ImageNet, from the original zip file or its unpacked folder."""

import contextlib
import os
import pathlib
import re
import zipfile
from typing import NamedTuple

from vrl_jax.data import files
from vrl_jax.data.archives import TINY_IMAGENET
from vrl_jax.errors import DataError

FOLDER = 'tiny_imagenet'
_STEM = 'tiny-imagenet-200'
_JPEG = b'\xff\xd8\xff'


class Image(NamedTuple):
  """An image that is not read yet: its name inside the data set, and its label.

  >>> Image('train/n01443537/images/n01443537_0.JPEG', label=0).label
  0
  """

  name: str
  label: int


class TinyImages:
  """The labelled images; nothing is unpacked.

  A label is the line of the class in `wnids.txt`, from 0. The images of each split come in rounds, one of every class:
  image i is of class i mod 200 in the whole data set. `extract_features` numbers and orders them in the same way.

  Attributes:
    class_names: the WordNet ids, in the order of `wnids.txt`.
    train: the training images.
    test: the images of the validation set (those of the test set have no labels).

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   with zipfile.ZipFile(pathlib.Path(folder, 'tiny-imagenet-200.zip'), 'w') as archive:
  ...     archive.writestr('tiny-imagenet-200/wnids.txt', 'n02\\nn01\\n')
  ...     archive.writestr('tiny-imagenet-200/train/n01/images/n01_0.JPEG', _JPEG)
  ...     archive.writestr('tiny-imagenet-200/val/val_annotations.txt', 'val_0.JPEG\\tn02\\t0\\t0\\t62\\t57\\n')
  ...     archive.writestr('tiny-imagenet-200/val/images/val_0.JPEG', _JPEG)
  ...   images = TinyImages(find_images(folder))
  ...   images.train, images.read(images.test[0])
  ([Image(name='train/n01/images/n01_0.JPEG', label=1)], b'\\xff\\xd8\\xff')
  """

  class_names: tuple[str, ...]
  train: list[Image]
  test: list[Image]

  def __init__(self, path: str | os.PathLike):
    """Lists the images of `path`: `tiny-imagenet-200.zip` or the folder; raises DataError if it is damaged."""
    self._path = pathlib.Path(path)
    self._archive = None
    if self._path.is_file():
      with self._troubles(''):
        self._archive = zipfile.ZipFile(self._path)
        names = [name.removeprefix(f'{_STEM}/') for name in self._archive.namelist()]
    else:
      names = [file.relative_to(self._path).as_posix() for file in self._path.rglob('*')]
    self.class_names = tuple(self._text('wnids.txt').split())
    label_of = {wnid: label for label, wnid in enumerate(self.class_names)}
    train = [
      Image(name, label_of[parts[1]])
      for name in sorted(names, key=_by_number)
      if name.startswith('train/') and len(parts := name.split('/')) == 4 and parts[1] in label_of and parts[3]
    ]
    test = self._validation(set(names), label_of)
    if not train or not test:
      raise DataError(f'{self._path}: has no images in train/*/images or val/images: get {TINY_IMAGENET.url} again')
    self.train, self.test = _in_rounds(train), _in_rounds(test)

  def read(self, image: Image) -> bytes:
    """The encoded (JPEG) bytes of an image; raises DataError if they cannot be read."""
    data = self._read(image.name)
    if not data.startswith(_JPEG):
      raise DataError(f'{self._path / image.name}, byte 0: not a JPEG image: get {TINY_IMAGENET.url} again')
    return data

  def _read(self, name: str) -> bytes:
    with self._troubles(name):
      if self._archive:
        return self._archive.read(f'{_STEM}/{name}')
      return (self._path / name).read_bytes()

  def _text(self, name: str) -> str:
    return files.decode(self._read(name), self._path / name, 1)

  def _validation(self, names: set[str], label_of: dict[str, int]) -> list[Image]:
    file = 'val/val_annotations.txt'
    images = []
    for number, line in enumerate(self._text(file).splitlines(), 1):
      name, wnid, *_ = [*line.split('\t'), '', '']
      if wnid not in label_of or f'val/images/{name}' not in names:
        raise DataError(
          f'{self._path / file}, line {number}: {line[:60]!r} does not give an image and its class: get {TINY_IMAGENET.url} again'
        )
      images.append(Image(f'val/images/{name}', label_of[wnid]))
    return images

  @contextlib.contextmanager
  def _troubles(self, name: str):
    try:
      yield
    except Exception as error:  # a damaged zip can raise nearly anything: struct, zlib, runtime, unicode errors
      where = self._path / name if name else self._path
      raise DataError(f'{where}: cannot be read ({error}): get {TINY_IMAGENET.url} again') from error


def find_images(data_dir: str | os.PathLike | None) -> pathlib.Path | None:
  """Finds the zip file or the unpacked folder in `data_dir/tiny_imagenet` or `data_dir`, or `data_dir` as the folder.

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
      if (path / 'wnids.txt').is_file() and (path / 'train').is_dir() or path.suffix == '.zip' and path.is_file():
        return path
  return None


def _by_number(name: str) -> list[str | int]:
  return [int(piece) if piece.isdecimal() else piece for piece in re.split(r'(\d+)', name)]


def _in_rounds(images: list[Image]) -> list[Image]:
  seen = {}
  rounds = []
  for image in images:
    seen[image.label] = seen.get(image.label, -1) + 1
    rounds.append((seen[image.label], image.label, image))
  return [image for *_, image in sorted(rounds, key=lambda entry: entry[:2])]
