"""Tiny ImageNet as Inception V3 features."""

import os
import pathlib

import numpy as np

from vrl_jax.data import files, prepared
from vrl_jax.data.archives import TINY_IMAGENET
from vrl_jax.data.npz import read_npz
from vrl_jax.data.splits import Splits, check_labels
from vrl_jax.data.tiny_imagenet_images import FOLDER, find_images
from vrl_jax.errors import DataError

FEATURES_FILE = 'inception_v3_features.npz'
NUM_CLASSES = 200
NUM_FEATURES = 2048
_ROWS_AT_ONCE = 4096


def load_tiny_imagenet_features(data_dir: str | os.PathLike | None = None) -> Splits:
  """Loads the features from `inception_v3_features.npz` in `data_dir/tiny_imagenet` or `data_dir`.

  The file holds x_train, x_test (float16 [n, 2048]) and y_train, y_test (integers [n], 0 to 199).

  Args:
    data_dir: the root of the user's data sets.

  Returns:
    Splits with 'feature' (float16 [n, 2048]) and 'label' (int32 [n]); the test split is made from the original's
    validation set. The class names are the WordNet ids if `wnids.txt` lies beside the file, else the numbers.

  Raises:
    DataError: the file is not there, is damaged, or holds arrays of another type or shape.

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
  """Finds the file of features; raises DataError, with the next thing to do, if it is not there.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   pathlib.Path(folder, 'inception_v3_features.npz').touch()
  ...   find_features(folder).name
  'inception_v3_features.npz'
  """
  if found := files.find_together(data_dir, FOLDER, [FEATURES_FILE]):
    return found[0]
  raise files.NotFound(_missing(data_dir))


def _check(features: np.ndarray, labels: np.ndarray, split: str, path: pathlib.Path) -> dict[str, np.ndarray]:
  if features.dtype != np.float16 or features.ndim != 2 or features.shape[1] != NUM_FEATURES or not len(features):
    raise DataError(
      f'{path}, array x_{split}: {features.dtype} {features.shape} where float16 (n, {NUM_FEATURES}), n > 0, is '
      'expected: make the file again with python -m vrl_jax.tools.extract_features'
    )
  if labels.dtype.kind not in 'iu' or labels.shape != (len(features),):
    raise DataError(
      f'{path}, array y_{split}: {labels.dtype} {labels.shape} where {len(features)} integers are expected: make the '
      'file again with python -m vrl_jax.tools.extract_features'
    )
  for start in range(0, len(features), _ROWS_AT_ONCE):
    good = np.isfinite(features[start : start + _ROWS_AT_ONCE]).all(axis=1)
    if not good.all():
      raise DataError(
        f'{path}, array x_{split}, row {start + int(np.argmin(good))}: a feature is not a finite number: make the file '
        'again with python -m vrl_jax.tools.extract_features'
      )
  return {'feature': features, 'label': check_labels(labels, NUM_CLASSES, f'{path}, array y_{split}')}


def _class_names(path: pathlib.Path) -> tuple[str, ...]:
  if path.is_file():
    names = files.decode(files.read_bytes(path), path, 1).split()
    if len(names) != NUM_CLASSES:
      raise DataError(f'{path}: {len(names)} class names where {NUM_CLASSES} are expected: take the original file')
    return tuple(names)
  return tuple(map(str, range(NUM_CLASSES)))


def _missing(data_dir: str | os.PathLike | None) -> str:
  place = files.as_folder(data_dir)
  images = find_images(data_dir) or find_images(prepared.manual_dir())
  output = (place or pathlib.Path('data')) / FOLDER / FEATURES_FILE
  extract = f'python -m vrl_jax.tools.extract_features --images {images or TINY_IMAGENET.name} --output {output}'
  if images:
    todo = f'the images are in {images}; make the features from them with: {extract}'
  else:
    todo = f'download {TINY_IMAGENET.url} and run: {extract}'
  looked = f'{place / FOLDER} and {place}' if place else 'no data_dir (none was given)'
  return f'the Tiny ImageNet features were not found: looked for {FEATURES_FILE} in {looked}; {todo}'
