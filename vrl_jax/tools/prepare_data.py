"""Finds or prepares a data set, checks it, and says what it found.

    python -m vrl_jax.tools.prepare_data mnist --data_dir data

Files in `--data_dir` and what TFDS has already prepared are only checked. Otherwise the original archive is downloaded
(in bounded time) and prepared with TFDS; without TensorFlow, MNIST's four files are kept in `--data_dir` instead.
"""

import argparse
import importlib.util
import pathlib
import sys
from collections.abc import Sequence

from vrl_jax.data import dbpedia, mnist, prepare, prepared, tiny_imagenet
from vrl_jax.data.files import NotFound
from vrl_jax.data.splits import Splits
from vrl_jax.data.tiny_imagenet_images import TinyImages, find_images
from vrl_jax.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> import tempfile
  >>> import numpy as np
  >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
  ...   x, y = np.zeros((3, 2048), np.float16), np.array([0, 7, 199])
  ...   np.savez(pathlib.Path(folder, 'inception_v3_features.npz'), x_train=x, y_train=y, x_test=x, y_test=y)
  ...   main(['tiny_imagenet', '--data_dir', folder])
  Tiny ImageNet (features): 3 training and 3 test examples, 200 classes (0 to 199)
    feature: float16 (2048,), label: int32 ()
    in ...
  0
  """
  parser = argparse.ArgumentParser(prog='python -m vrl_jax.tools.prepare_data', description=__doc__.split('\n')[0])
  parser.add_argument('name', choices=prepare.NAMES)
  parser.add_argument('--data_dir', help='folder with the data sets, as in the README')
  parser.add_argument('--tfds', action='store_true', help='prepare with TFDS even if the files are in --data_dir')
  parser.add_argument('--timeout', type=float, default=1800, help='seconds that each download may take')
  args = parser.parse_args(argv)
  try:
    if args.tfds:
      print(f'TFDS: {prepare.prepare(args.name, args.data_dir, timeout=args.timeout)}')
    try:
      _DESCRIBE[args.name](args.data_dir)
    except NotFound as missing:
      _get(args, missing)
      _DESCRIBE[args.name](args.data_dir)
  except UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return error.exit_status
  return 0


def _get(args: argparse.Namespace, missing: NotFound) -> None:
  if args.name == 'mnist' and args.data_dir and importlib.util.find_spec('tensorflow') is None:
    prepare.fetch_mnist(args.data_dir, timeout=args.timeout)
  elif 'GloVe' in str(missing):
    raise missing
  else:
    prepare.prepare(args.name, args.data_dir, timeout=args.timeout)


def _describe_mnist(data_dir: str | None) -> None:
  folder = mnist.find_mnist(data_dir)[0]
  _print_splits('MNIST', mnist.load_mnist(data_dir), folder if folder.is_dir() else folder.parent)


def _describe_dbpedia(data_dir: str | None) -> None:
  folder = dbpedia.open_dbpedia(data_dir).sources[0].parent
  splits, embedding = dbpedia.load_dbpedia(data_dir, lowercase=True)
  _print_splits('DBPedia-14', splits, folder)
  print(f'  {len(embedding) - 1:,} GloVe words of {embedding.shape[1]} dimensions occur (lower-cased)')


def _describe_tiny_imagenet(data_dir: str | None) -> None:
  try:
    path = tiny_imagenet.find_features(data_dir)
  except NotFound as missing:
    if images := find_images(data_dir):
      found = TinyImages(images)
      print(f'Tiny ImageNet (images): {len(found.train):,} training and {len(found.test):,} validation images')
    elif images := prepared.find_prepared('tiny_imagenet', data_dir):
      print('Tiny ImageNet (images): prepared with TFDS, for tfds.data_source')
    else:
      raise
    print(f'  in {images}\n  {missing}')
  else:
    _print_splits('Tiny ImageNet (features)', tiny_imagenet.load_tiny_imagenet_features(data_dir), path.parent)


def _print_splits(title: str, splits: Splits, folder: pathlib.Path) -> None:
  train, test = len(splits.train['label']), len(splits.test['label'])
  names = splits.class_names
  print(f'{title}: {train:,} training and {test:,} test examples, {len(names)} classes ({names[0]} to {names[-1]})')
  print('  ' + ', '.join(f'{name}: {array.dtype} {array.shape[1:]}' for name, array in splits.train.items()))
  print(f'  in {folder}')


_DESCRIBE = {'mnist': _describe_mnist, 'dbpedia': _describe_dbpedia, 'tiny_imagenet': _describe_tiny_imagenet}

if __name__ == '__main__':
  sys.exit(main())
