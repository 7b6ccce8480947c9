"""Finds or prepares a data set, checks it and prints a summary.

    python -m vrl_jax.tools.prepare_data mnist --data_dir data

Files in `--data_dir` and data sets that TFDS has already prepared are only checked. Otherwise the original archive is
downloaded and prepared with TFDS. Without TensorFlow, the four files of MNIST are downloaded into `--data_dir` instead.
"""

import importlib.util
import pathlib
import sys
from collections.abc import Sequence

from vrl_jax.data.sources import dbpedia, mnist, tiny_imagenet
from vrl_jax.data.sources.splits import Splits
from vrl_jax.data.sources.tiny_imagenet_images import find_images, open_images
from vrl_jax.data.tfds import prepare, reader
from vrl_jax.errors import DataNotFound
from vrl_jax.tools.arguments import ArgumentParser, positive_float, reports_errors


@reports_errors
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
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.prepare_data',
    description='Finds or prepares a data set, checks it and prints a summary.',
  )
  parser.add_argument('name', choices=prepare.NAMES)
  parser.add_argument('--data_dir', help='the root of the data sets, as in the README')
  parser.add_argument('--tfds', action='store_true', help='prepare with TFDS even if the files are in --data_dir')
  parser.add_argument(
    '--timeout', type=positive_float, default=1800, help='time limit of each download in seconds (default: 1800)'
  )
  args = parser.parse_args(argv)
  if args.tfds:
    print(f'TFDS: {prepare.prepare(args.name, args.data_dir, timeout=args.timeout)}')
  try:
    _DESCRIBE[args.name](args.data_dir)
  except DataNotFound as error:
    if 'GloVe' in str(error):
      raise
    _download(args.name, args.data_dir, args.timeout)
    _DESCRIBE[args.name](args.data_dir)
  return 0


def _download(name: str, data_dir: str | None, timeout: float) -> None:
  if name == 'mnist' and data_dir and importlib.util.find_spec('tensorflow') is None:
    prepare.download_mnist(data_dir, timeout=timeout)
  else:
    prepare.prepare(name, data_dir, timeout=timeout)


def _describe_mnist(data_dir: str | None) -> None:
  folder = mnist.find_mnist(data_dir)[0]
  _print_splits('MNIST', mnist.load_mnist(data_dir), folder if folder.is_dir() else folder.parent)


def _describe_dbpedia(data_dir: str | None) -> None:
  folder = dbpedia.open_dbpedia(data_dir).sources[0].parent
  splits, embedding = dbpedia.load_dbpedia(data_dir, lowercase=True)
  _print_splits('DBPedia-14', splits, folder)
  print(f'  {len(embedding) - 1:,} GloVe words of {embedding.shape[1]} dimensions occur (in lower case)')


def _describe_tiny_imagenet(data_dir: str | None) -> None:
  try:
    path = tiny_imagenet.find_features(data_dir)
  except DataNotFound as error:
    if found := find_images(data_dir):
      images = open_images(found)
      print(f'Tiny ImageNet (images): {len(images.train):,} training and {len(images.test):,} validation images')
    elif found := reader.find_prepared('tiny_imagenet', data_dir):
      print('Tiny ImageNet (images): prepared with TFDS, for tfds.data_source')
    else:
      raise
    print(f'  in {found}\n  {error}')
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
