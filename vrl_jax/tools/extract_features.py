"""Makes the Inception V3 features of Tiny ImageNet that the task `mlp_tiny_imagenet` trains on.

  python -m vrl_jax.tools.extract_features --images tiny-imagenet-200.zip --output inception_v3_features.npz

Reads the original zip or its unpacked folder, and writes x_train, x_test (float16 [n, 2048]: global average pool of
images at 299 x 299) and y_train, y_test (the line of the class in wnids.txt, from 0). Rows go round the classes: row i
is class i mod 200 where all have equally many images. Needs Keras 3, on JAX, and Pillow (the extra `features`).

After an interruption the same command goes on (part files lie beside the output), with the same result as one run.
"""

import argparse
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from concurrent import futures

import numpy as np
import tqdm

from vrl_jax.errors import DataError, UserError

_SIDE, _FEATURES, _BATCHES_PER_PART = 299, 2048, 8
_WEIGHTS_FILE = 'inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5'
Read = Callable[[str], bytes]
Splits = dict[str, list[tuple[str, int]]]  # name of the split -> (name of the image, class), in the order of the rows


def open_images(path: pathlib.Path) -> tuple[list[str], Read]:
  """The names of all files in a folder or zip (from where wnids.txt lies), and the function that reads one.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   _ = pathlib.Path(folder, 'wnids.txt').write_text('n01443537\\n')
  ...   names, read = open_images(pathlib.Path(folder))
  ...   names, read('wnids.txt')
  (['wnids.txt'], b'n01443537\\n')
  """
  if path.is_dir():
    names = [file.relative_to(path).as_posix() for file in path.rglob('*.*')]
    return names, lambda name: (path / name).read_bytes()
  if not path.exists():
    raise DataError(f'{path} is not there: give --images the folder tiny-imagenet-200 or tiny-imagenet-200.zip')
  try:
    archive = zipfile.ZipFile(path)
  except zipfile.BadZipFile as error:
    raise DataError(f'{path} is neither a folder nor a whole zip file ({error})') from error
  root = next((name.removesuffix('wnids.txt') for name in archive.namelist() if name.endswith('wnids.txt')), '')
  return [name.removeprefix(root) for name in archive.namelist()], lambda name: archive.read(root + name)


def find_splits(names: Sequence[str], read: Read, limit_per_class: int | None = None) -> Splits:
  """The images of `train` and of `test` (the original's val), at most the first `limit_per_class` of each class.

  >>> files = {'wnids.txt': b'n02\\nn01', 'val/val_annotations.txt': b'val_0.JPEG\\tn01\\t0\\t0\\t62\\t57'}
  >>> files |= {f'train/{wnid}/images/{wnid}_{i}.JPEG': b'' for wnid in ('n01', 'n02') for i in (10, 9)}
  >>> for split, rows in find_splits(list(files), files.get, limit_per_class=1).items():
  ...   print(split, rows)
  train [('train/n02/images/n02_9.JPEG', 0), ('train/n01/images/n01_9.JPEG', 1)]
  test [('val/images/val_0.JPEG', 1)]
  """
  for needed in ('wnids.txt', 'val/val_annotations.txt'):
    if needed not in names:
      raise DataError(f'{needed} is missing: --images must be the folder or zip with wnids.txt, train/ and val/ in it')
  classes = {wnid: label for label, wnid in enumerate(read('wnids.txt').decode().split())}
  train, test = ([[] for _ in classes] for _ in range(2))
  for name in names:
    match = re.fullmatch(r'train/([^/]+)/images/[^/]+\.jpe?g', name, re.IGNORECASE)
    if match and match[1] in classes:
      train[classes[match[1]]].append(name)
  for number, line in enumerate(read('val/val_annotations.txt').decode().splitlines(), start=1):
    file, wnid, *_ = [*line.split('\t'), '']
    if wnid not in classes:
      raise DataError(f'val/val_annotations.txt, line {number}: {wnid!r} is not a class of wnids.txt')
    test[classes[wnid]].append(f'val/images/{file}')
  for wnid, label in classes.items():
    if not train[label]:
      raise DataError(f'train/{wnid}/images has no .JPEG file: unpack tiny-imagenet-200.zip again')
  return {'train': _round_the_classes(train, limit_per_class), 'test': _round_the_classes(test, limit_per_class)}


def _round_the_classes(by_class: list[list[str]], limit: int | None) -> list[tuple[str, int]]:
  by_number = lambda name: [int(piece) if piece.isdigit() else piece for piece in re.split(r'(\d+)', name)]
  rows = itertools.zip_longest(*(sorted(names, key=by_number)[:limit] for names in by_class))
  return [(name, label) for row in rows for label, name in enumerate(row) if name is not None]


def load_image(read: Read, name: str) -> np.ndarray:
  """One image as uint8 [299, 299, 3]; grey ones become RGB.

  >>> import importlib.util
  >>> if importlib.util.find_spec('PIL'):
  ...   from PIL import Image
  ...   jpeg = io.BytesIO()
  ...   Image.new('L', (64, 64), 128).save(jpeg, 'jpeg')
  ...   load_image({'grey.JPEG': jpeg.getvalue()}.get, 'grey.JPEG').shape
  (299, 299, 3)
  """
  from PIL import Image

  try:
    with Image.open(io.BytesIO(read(name))) as image:
      return np.asarray(image.convert('RGB').resize((_SIDE, _SIDE), Image.Resampling.BILINEAR))
  except (OSError, KeyError, SyntaxError, ValueError, zipfile.BadZipFile) as error:
    raise DataError(f'{name} cannot be read as an image ({error})'.replace('\n', ' ')) from error


def inception_v3(weights: str) -> Callable[[np.ndarray], np.ndarray]:
  """The function from images [b, 299, 299, 3] in -1 ... 1 to features [b, 2048]; for the weights see `--help`."""
  os.environ['KERAS_BACKEND'] = 'jax'  # without it Keras looks for TensorFlow
  try:
    import keras
    import PIL  # noqa: F401
  except ImportError as error:
    raise UserError(f"no module {error.name}: pip install 'keras>=3.15' 'pillow>=13' (the extra `features`)") from error
  keras.config.set_image_data_format('channels_last')
  keras.utils.set_random_seed(0)
  build = functools.partial(keras.applications.InceptionV3, False, pooling='avg', input_shape=(_SIDE, _SIDE, 3))
  try:
    model = build(weights=None if weights == 'random' else weights)
  except (
    Exception
  ) as error:  # Keras raises a bare Exception when a download fails, OSError or ValueError for a bad file
    reason = ' '.join(str(error).split())[:200]
    raise DataError(f'no weights from {weights!r} ({reason}): give --weights the file {_WEIGHTS_FILE}') from error
  return lambda images: np.asarray(model.predict_on_batch(images))


def write_atomically(path: pathlib.Path, write: Callable[[io.BufferedWriter], object]) -> None:
  """Writes a file that is either whole or not there.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   write_atomically(pathlib.Path(folder, 'new', 'x.npy'), functools.partial(np.save, arr=np.arange(3)))
  ...   np.load(pathlib.Path(folder, 'new', 'x.npy'))
  array([0, 1, 2])
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(path.name + '.tmp')
  with temporary.open('wb') as file:
    write(file)
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(path)


def open_parts(folder: pathlib.Path, settings: dict) -> None:
  """Readies the folder of part files; refuses one with parts that were made with other settings.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   folder = pathlib.Path(name)
  ...   open_parts(folder, {'batch_size': 32})
  ...   np.save(folder / 'train-0000000.npy', np.zeros(2))
  ...   try:
  ...     open_parts(folder, {'batch_size': 64})
  ...   except UserError as error:
  ...     print(str(error).removeprefix(name)[:57])
   was begun with other settings (batch_size was 32, is 64)
  """
  file = folder / 'settings.json'
  before = json.loads(file.read_text()) if any(folder.glob('*.npy')) else settings
  if other := [f'{key} was {before[key]}, is {value}' for key, value in settings.items() if before[key] != value]:
    raise UserError(f'{folder} was begun with other settings ({"; ".join(other)}): go on with those, or remove it')
  write_atomically(file, lambda out: out.write(json.dumps(settings).encode()))


def extract(splits: Splits, load: Callable, model: Callable, output: pathlib.Path, batch_size: int) -> None:
  """Makes the parts that are missing, then `output` of all of them, then removes them.

  >>> import tempfile
  >>> brightness = lambda images: np.repeat(images.mean(axis=(1, 2)), 2048, axis=1)  # a model for the example
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   output = pathlib.Path(folder, 'features.npz')
  ...   splits = {'train': [('a', 0), ('b', 1)], 'test': [('b', 1)]}
  ...   extract(splits, lambda name: np.full((4, 4, 1), {'a': 0, 'b': 255}[name]), brightness, output, batch_size=2)
  ...   features = dict(np.load(output))
  >>> features['x_train'][:, 0], features['y_test']
  (array([-1.,  1.], dtype=float16), array([1], dtype=int32))
  """
  folder, size = output.with_name(output.name + '.parts'), batch_size * _BATCHES_PER_PART
  arrays = {}
  with futures.ThreadPoolExecutor(8) as pool, tqdm.tqdm(total=sum(map(len, splits.values())), unit='image') as bar:
    for key, rows in splits.items():
      x = arrays[f'x_{key}'] = np.empty((len(rows), _FEATURES), np.float16)
      arrays[f'y_{key}'] = np.array([label for _, label in rows], np.int32)
      for start in range(0, len(rows), size):
        file, names = folder / f'{key}-{start:07}.npy', [name for name, _ in rows[start : start + size]]
        if not file.exists():
          part = _features(pool.map(load, names), model, batch_size)
          write_atomically(file, functools.partial(np.save, arr=part))
        x[start : start + size] = np.load(file)
        bar.update(len(names))
  write_atomically(output, lambda out: np.savez(out, **arrays))
  shutil.rmtree(folder)


def _features(images, model: Callable, batch_size: int) -> np.ndarray:
  rows = []
  while batch := list(itertools.islice(images, batch_size)):
    padded = np.zeros((batch_size, *batch[0].shape), np.float32)  # the last one too: one compiled program for all
    padded[: len(batch)] = batch
    rows.append(model(padded / 127.5 - 1)[: len(batch)].astype(np.float16))
  return np.concatenate(rows)


def run(images: pathlib.Path, output: pathlib.Path, weights: str, batch_size: int, limit_per_class: int | None) -> None:
  """What the command does; the arguments are its flags.

  >>> run(pathlib.Path('images'), pathlib.Path('features.txt'), 'random', batch_size=32, limit_per_class=None)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: features.txt must end in .npz
  """
  if batch_size < 1 or (limit_per_class is not None and limit_per_class < 1):
    raise UserError(f'batch_size={batch_size}, limit_per_class={limit_per_class}, must be >= 1')
  if output.suffix != '.npz' or output.exists():
    raise UserError(f'{output} must end in .npz' if output.suffix != '.npz' else f'{output} is there already')
  digest = weights
  if weights not in ('imagenet', 'random'):
    if not pathlib.Path(weights).is_file():
      raise DataError(f"--weights {weights} is not there: give a file, 'imagenet' (downloaded by Keras) or 'random'")
    digest = hashlib.sha256(pathlib.Path(weights).read_bytes()).hexdigest()
  names, read = open_images(images)
  splits = find_splits(names, read, limit_per_class)
  used = hashlib.sha256(json.dumps(splits).encode()).hexdigest()
  settings = {'images': used, 'weights': digest, 'batch_size': batch_size, 'limit_per_class': limit_per_class}
  open_parts(output.with_name(output.name + '.parts'), settings)
  extract(splits, functools.partial(load_image, read), inception_v3(weights), output, batch_size)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; returns the exit status.

  >>> main(['--images=nowhere', '--output=features.npz', '--weights=random'])  # says on stderr what is missing
  3
  """
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--images', type=pathlib.Path, required=True, help='tiny-imagenet-200, or its zip')
  parser.add_argument('--output', type=pathlib.Path, required=True, help='the .npz file to write')
  parser.add_argument('--weights', default='imagenet', help="a file, 'imagenet' (downloaded by Keras) or 'random'")
  parser.add_argument('--batch_size', type=int, default=32)
  parser.add_argument('--limit_per_class', type=int, help='take only the first so many images of each class')
  try:
    run(**vars(parser.parse_args(argv)))
  except (UserError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return getattr(error, 'exit_status', 1)
  except KeyboardInterrupt:
    print('interrupted; the same command goes on', file=sys.stderr)
    return 130
  return 0


if __name__ == '__main__':
  sys.exit(main())
