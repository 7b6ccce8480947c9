"""LeNet-5 on MNIST: 28×28 images resized to 32×32 and normalised, as in the paper."""

from typing import Any

import numpy as np

from vrl_jax.data.mnist import load_mnist, load_mnist_5k
from vrl_jax.errors import UserError
from vrl_jax.models.lenet import LeNet
from vrl_jax.rounds import AXES
from vrl_jax.tasks._classification import classification_task
from vrl_jax.tasks.base import Task

_MEAN, _DEVIATION = 0.1307, 0.3081
_SIDE = 32
_DATASETS = {
  'mnist': lambda config: load_mnist(config.data_dir),
  'mnist_5k': lambda config: load_mnist_5k(),
}


def make_task(config: Any) -> Task:
  """LeNet on `config.dataset`: 'mnist' (in `data_dir` or prepared by TFDS) or 'mnist_5k' (embedded).

  With `config.batch_norm` it is LeNet with batch normalisation, whose statistics go by the policy `config.batch_stats`.

  >>> from vrl_jax.config_files import load_config
  >>> config = load_config('lenet_mnist')
  >>> config.dataset = 'mnist_5k'
  >>> task = make_task(config)
  >>> task.train['input'].shape, task.test['input'].shape
  ((4000, 32, 32), (1000, 32, 32))
  """
  if config.dataset not in _DATASETS:
    raise UserError(f'dataset={config.dataset!r}, must be one of {", ".join(_DATASETS)}')
  splits = _DATASETS[config.dataset](config)
  train, test = ({'input': prepare_images(s['image']), 'label': s['label']} for s in (splits.train, splits.test))
  stats_axis = AXES if config.batch_stats == 'sync' else None
  model = LeNet(conv_form=config.conv_form, batch_norm=config.batch_norm, stats_axis=stats_axis)
  return classification_task(model, train, test, splits.class_names)


def prepare_images(images: np.ndarray) -> np.ndarray:
  """uint8 [n, 28, 28] to normalised float32 [n, 32, 32], resized bilinearly.

  There is no axis for the one channel: with it XLA's CPU backend copies all of a device's images in every round.

  >>> images = prepare_images(np.full((2, 28, 28), 255, np.uint8))
  >>> images.shape, round(float(images[0, 16, 16]), 3)  # (1 - 0.1307) / 0.3081
  ((2, 32, 32), 2.821)
  """
  rows = bilinear(_SIDE, images.shape[1])
  columns = bilinear(_SIDE, images.shape[2])
  out = np.empty((len(images), _SIDE, _SIDE), np.float32)
  for start in range(0, len(images), 4096):
    part = images[start : start + 4096].astype(np.float32) / 255
    out[start : start + 4096] = (rows @ part @ columns.T - _MEAN) / _DEVIATION
  return out


def bilinear(size: int, old: int) -> np.ndarray:
  """The matrix [size, old] that stretches a line of pixels, with pixel centres at halves, as image libraries do.

  >>> bilinear(4, 2).tolist()
  [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
  """
  centres = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
  return np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(old)[None])).astype(np.float32)
