"""Tiny ImageNet as Inception V3 features."""

import os
import pathlib

import numpy as np

from vrl_jax.data.sources import files
from vrl_jax.data.sources.archives import TINY_IMAGENET
from vrl_jax.data.sources.npz import read_npz
from vrl_jax.data.sources.splits import Splits, check_labels
from vrl_jax.data.sources.tiny_imagenet_images import FOLDER, find_images
from vrl_jax.data.tfds import reader
from vrl_jax.errors import DataError, DataNotFound

FEATURES_FILE = 'inception_v3_features.npz'
NUM_CLASSES = 200
NUM_FEATURES = 2048
_CHUNK = 4096


def load_tiny_imagenet_features(data_dir: str | os.PathLike | None = None) -> Splits:
  """Loads the features from `inception_v3_features.npz` in `data_dir/tiny_imagenet` or `data_dir`.

  The file has the arrays x_train, x_test (float16 [n, 2048]) and y_train, y_test (integers [n], 0 to 199).

  Args:
    data_dir: the root of the user's data sets.

  Returns:
    Splits with 'feature' (float16 [n, 2048]) and 'label' (int32 [n]); the test split is the original validation set.
    The class names are the WordNet ids if `wnids.txt` is in the same folder, else the numbers.

  Raises:
    DataNotFound: the file was not found.
    DataError: the file is damaged or its arrays have another type or shape.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   x, y = np.zeros((3, 2048), np.float16), np.array([0, 7, 199])
  ...   np.savez(pathlib.Path(folder, 'inception_v3_features.npz'), x_train=x, y_train=y, x_test=x, y_test=y)
  ...   splits = load_tiny_imagenet_features(folder)
  >>> splits.train['feature'].shape, splits.train['label']
  ((3, 2048), array([  0,   7, 199], dtype=int32))
  """
  path = find_features(data_dir)
  arrays = read_npz(path, ['x_train', 'y_train', 'x_test', 'y_test'])
  train, test = (_check(arrays[f'x_{split}'], arrays[f'y_{split}'], split, path) for split in ('train', 'test'))
  return Splits(train, test, _class_names(path.with_name('wnids.txt')))


def find_features(data_dir: str | os.PathLike | None = None) -> pathlib.Path:
  """Finds the file with the features; raises DataNotFound, which says how to make it.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   pathlib.Path(folder, 'inception_v3_features.npz').touch()
  ...   find_features(folder).name
  'inception_v3_features.npz'
  """
  if found := files.find_files(data_dir, FOLDER, [FEATURES_FILE]):
    return found[0]
  raise DataNotFound(_missing(data_dir))


def _check(features: np.ndarray, labels: np.ndarray, split: str, path: pathlib.Path) -> dict[str, np.ndarray]:
  if features.dtype != np.float16 or features.ndim != 2 or features.shape[1] != NUM_FEATURES or not len(features):
    raise DataError(
      f'{path}, array x_{split}: is {features.dtype} {features.shape}, must be float16 (n, {NUM_FEATURES}) with n > 0: '
      'make the file again with python -m vrl_jax.tools.extract_features'
    )
  if labels.dtype.kind not in 'iu' or labels.shape != (len(features),):
    raise DataError(
      f'{path}, array y_{split}: is {labels.dtype} {labels.shape}, must be {len(features)} integers: make the file '
      'again with python -m vrl_jax.tools.extract_features'
    )
  for start in range(0, len(features), _CHUNK):
    finite = np.isfinite(features[start : start + _CHUNK]).all(axis=1)
    if not finite.all():
      raise DataError(
        f'{path}, array x_{split}, row {start + int(np.argmin(finite))}: a feature is not finite: make the file '
        'again with python -m vrl_jax.tools.extract_features'
      )
  return {'feature': features, 'label': check_labels(labels, NUM_CLASSES, f'{path}, array y_{split}')}


def _class_names(path: pathlib.Path) -> tuple[str, ...]:
  if path.is_file():
    names = files.decode(files.read_bytes(path), path, 1).split()
    if len(names) != NUM_CLASSES:
      raise DataError(f'{path}: has {len(names)} class names, must have {NUM_CLASSES}: use the original file')
    return tuple(names)
  return tuple(map(str, range(NUM_CLASSES)))


def _missing(data_dir: str | os.PathLike | None) -> str:
  images = find_images(data_dir) or find_images(reader.manual_dir())
  output = (files.as_folder(data_dir) or pathlib.Path('data')) / FOLDER / FEATURES_FILE
  first = f'the images are in {images}:' if images else f'download {TINY_IMAGENET.url} and'
  return (
    f'the Tiny ImageNet features were not found: searched {files.searched(data_dir, FOLDER)} for {FEATURES_FILE}; '
    f'{first} run python -m vrl_jax.tools.extract_features --images {images or TINY_IMAGENET.name} --output {output}'
  )
