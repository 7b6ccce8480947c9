"""Makes the Inception V3 features of Tiny ImageNet that the task `mlp_tiny_imagenet` trains on.

    python -m vrl_jax.tools.extract_features --images tiny-imagenet-200.zip --output inception_v3_features.npz

Reads the original zip file or its unpacked folder. Writes x_train, x_test (float16 [n, 2048]: the global average pool for
images of 299 x 299) and y_train, y_test (the index of the class in wnids.txt), in the order of
`vrl_jax.data.sources.tiny_imagenet_images`. Needs Keras 3, which runs on JAX, and Pillow (the extra `features`).

After an interruption, rerun the same command to resume (part files are next to the output); the result is the same.
"""

import functools
import io
import itertools
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
import tqdm

from vrl_jax.data.sources.tiny_imagenet import NUM_FEATURES
from vrl_jax.data.sources.tiny_imagenet_images import Image, TinyImages, open_images
from vrl_jax.errors import DataError, UserError, require_extra
from vrl_jax.system.storage import atomic_path, file_sha256, sha256
from vrl_jax.tools.arguments import ArgumentParser, expanded_path, positive_int, reports_errors

_SIDE, _BATCHES_PER_PART = 299, 8
_WEIGHTS_FILE = 'inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5'
Model = Callable[[np.ndarray], np.ndarray]


def load_image(images: TinyImages, image: Image) -> np.ndarray:
  """Decodes an image: uint8 [299, 299, 3], also for a grey one.

  >>> import importlib.util
  >>> if importlib.util.find_spec('PIL'):
  ...   import PIL.Image
  ...   jpeg = io.BytesIO()
  ...   PIL.Image.new('L', (64, 64), 128).save(jpeg, 'jpeg')
  ...   images = TinyImages((), [], [], pathlib.Path('images'), lambda name: jpeg.getvalue())
  ...   load_image(images, Image('grey.JPEG', 0)).shape
  (299, 299, 3)
  """
  import PIL.Image

  data = images.read(image)
  try:
    with PIL.Image.open(io.BytesIO(data)) as decoded:
      return np.asarray(decoded.convert('RGB').resize((_SIDE, _SIDE), PIL.Image.Resampling.BILINEAR))
  except (OSError, SyntaxError, ValueError) as error:
    reason = ' '.join(str(error).split())
    raise DataError(f'{images.path / image.name}: cannot be decoded ({reason}): get the file again') from error


def inception_v3(weights: str) -> Model:
  """The function from images [b, 299, 299, 3] in [-1, 1] to features [b, 2048]; see `--help` for the weights."""
  os.environ['KERAS_BACKEND'] = 'jax'  # the default is TensorFlow
  require_extra('features', 'extract_features', 'keras', 'PIL')
  import keras

  keras.config.set_image_data_format('channels_last')
  keras.utils.set_random_seed(0)
  build = functools.partial(keras.applications.InceptionV3, False, pooling='avg', input_shape=(_SIDE, _SIDE, 3))
  try:
    model = build(weights=None if weights == 'random' else weights)
  except Exception as error:  # Keras: a bare Exception for a failed download, OSError or ValueError for a bad file
    reason = ' '.join(str(error).split())[:200]
    raise DataError(f'no weights from {weights!r} ({reason}): set --weights to the file {_WEIGHTS_FILE}') from error
  return lambda images: np.asarray(model.predict_on_batch(images))


def open_parts(folder: pathlib.Path, settings: Mapping[str, Any]) -> None:
  """Creates the folder of part files; refuses one with parts that were made with other settings.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   folder = pathlib.Path(name)
  ...   open_parts(folder, {'batch_size': 32})
  ...   np.save(folder / 'train-0000000.npy', np.zeros(2))
  ...   try:
  ...     open_parts(folder, {'batch_size': 64})
  ...   except UserError as error:
  ...     print(str(error).removeprefix(name)[:55])
  : has parts for other settings (batch_size=32, now 64):
  """
  folder.mkdir(parents=True, exist_ok=True)
  file = folder / 'settings.json'
  stored = json.loads(file.read_text()) if any(folder.glob('*.npy')) else settings
  if other := [f'{key}={stored[key]!r}, now {value!r}' for key, value in settings.items() if stored[key] != value]:
    raise UserError(f'{folder}: has parts for other settings ({"; ".join(other)}): use those, or remove the folder')
  with atomic_path(file) as temporary:
    temporary.write_text(json.dumps(settings))


def extract(
  splits: Mapping[str, Sequence[Image]],
  load: Callable[[Image], np.ndarray],
  model: Model,
  output: pathlib.Path,
  batch_size: int,
) -> None:
  """Makes the missing parts, then `output` from all parts, and removes the parts.

  Args:
    splits: the images of 'train' and 'test', in the order of the rows.
    load: decodes an image: uint8 [side, side, channels].
    model: maps images [batch_size, side, side, channels] in [-1, 1] to features [batch_size, 2048].
    output: the .npz file to write.
    batch_size: the number of images per call of the model.

  >>> import tempfile
  >>> brightness = lambda images: np.repeat(images.mean(axis=(1, 2)), 2048, axis=1)  # a model for the example
  >>> splits = {'train': [Image('black', 0), Image('white', 1)], 'test': [Image('white', 1)]}
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   output = pathlib.Path(folder, 'features.npz')
  ...   open_parts(parts_folder(output), {})
  ...   extract(splits, lambda image: np.full((4, 4, 1), 255 * image.label), brightness, output, batch_size=2)
  ...   features = dict(np.load(output))
  >>> features['x_train'][:, 0], features['y_test']
  (array([-1.,  1.], dtype=float16), array([1], dtype=int32))
  """
  folder, part_size = parts_folder(output), batch_size * _BATCHES_PER_PART
  arrays: dict[str, np.ndarray] = {}
  with futures.ThreadPoolExecutor(8) as pool, tqdm.tqdm(total=sum(map(len, splits.values())), unit='image') as bar:
    for split, rows in splits.items():
      x = arrays[f'x_{split}'] = np.empty((len(rows), NUM_FEATURES), np.float16)
      arrays[f'y_{split}'] = np.array([image.label for image in rows], np.int32)
      for start in range(0, len(rows), part_size):
        part = rows[start : start + part_size]
        file = folder / f'{split}-{start:07}.npy'
        if not file.exists():
          features = _features(pool.map(load, part), model, batch_size)
          with atomic_path(file) as temporary, open(temporary, 'wb') as stream:
            np.save(stream, features)
        x[start : start + part_size] = np.load(file)
        bar.update(len(part))
  with atomic_path(output) as temporary, open(temporary, 'wb') as stream:
    np.savez(stream, allow_pickle=False, **arrays)
  shutil.rmtree(folder)


def parts_folder(output: pathlib.Path) -> pathlib.Path:
  """The folder of the part files for an output.

  >>> parts_folder(pathlib.Path('features.npz')).name
  'features.npz.parts'
  """
  return output.with_name(f'{output.name}.parts')


def _features(images: Iterable[np.ndarray], model: Model, batch_size: int) -> np.ndarray:
  rows = []
  iterator: Iterator[np.ndarray] = iter(images)
  while batch := list(itertools.islice(iterator, batch_size)):
    padded = np.zeros((batch_size, *batch[0].shape), np.float32)  # a constant shape, to compile once
    padded[: len(batch)] = batch
    rows.append(model(padded / 127.5 - 1)[: len(batch)].astype(np.float16))
  return np.concatenate(rows)


def run(images: pathlib.Path, output: pathlib.Path, weights: str, batch_size: int, limit_per_class: int | None) -> None:
  """Runs the command; the arguments are its options.

  >>> run(pathlib.Path('images'), pathlib.Path('features.txt'), 'random', batch_size=32, limit_per_class=None)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: --output=features.txt, must end in .npz
  """
  if output.suffix != '.npz':
    raise UserError(f'--output={output}, must end in .npz')
  if output.exists():
    raise UserError(f'--output={output} exists already: remove it or choose another file')
  digest = weights
  if weights not in ('imagenet', 'random'):
    if not pathlib.Path(weights).is_file():
      raise DataError(f"--weights={weights}, must be a file, 'imagenet' (downloaded by Keras) or 'random'")
    digest = file_sha256(weights)
  if not images.exists():
    raise DataError(f'--images={images} does not exist, must be the folder tiny-imagenet-200 or tiny-imagenet-200.zip')
  data_set = open_images(images, limit_per_class)
  splits = {'train': data_set.train, 'test': data_set.test}
  settings = {
    'images': sha256(json.dumps(splits)),
    'weights': digest,
    'batch_size': batch_size,
    'limit_per_class': limit_per_class,
  }
  open_parts(parts_folder(output), settings)
  extract(splits, functools.partial(load_image, data_set), inception_v3(weights), output, batch_size)


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
  """Parses the command line and runs the command; returns the exit status.

  >>> main(['--images=nowhere', '--output=features.npz', '--weights=random'])  # prints what is missing on stderr
  3
  """
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.extract_features',
    description='Makes the Inception V3 features of Tiny ImageNet. Rerun the same command to resume.',
  )
  parser.add_argument(
    '--images', type=expanded_path, required=True, help='the folder tiny-imagenet-200 or its zip file'
  )
  parser.add_argument('--output', type=expanded_path, required=True, help='the .npz file to write')
  parser.add_argument(
    '--weights', default='imagenet', help="a file, 'imagenet' (downloaded by Keras, the default) or 'random'"
  )
  parser.add_argument('--batch_size', type=positive_int, default=32, help='images per batch (default: 32)')
  parser.add_argument('--limit_per_class', type=positive_int, help='use only the first images of each class')
  try:
    run(**vars(parser.parse_args(argv)))
  except KeyboardInterrupt:
    print('interrupted; rerun the same command to resume', file=sys.stderr)
    return 130
  return 0


if __name__ == '__main__':
  sys.exit(main())
