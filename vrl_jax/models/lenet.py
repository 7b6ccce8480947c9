"""LeNet-5 with ReLU and max-pooling, as the paper trains it on MNIST, optionally with batch normalisation."""

import functools
from typing import Any

import chex
import flax.linen as nn
import jax
from jax import lax

from vrl_jax.cpu import conv_pool
from vrl_jax.cpu.conv_form import call_form, choose_form
from vrl_jax.models import convolution


class LeNet(nn.Module):
  """5x5 convolutions with 6 and 16 channels, each with ReLU and a 2x2 max-pool, then dense layers (120, 84, classes).

  Attributes:
    num_classes: the number of logits.
    conv_form: 'xla', 'patches' or 'auto' (see `vrl_jax.cpu.conv_form`); it changes neither parameters nor results.
    batch_norm: whether each pool and each hidden layer is followed by batch normalisation.
    stats_axis: the mapped axes over which batch statistics are averaged in training; None for statistics per worker.

  >>> images = jax.ShapeDtypeStruct((1, 32, 32), 'float32')
  >>> variables = jax.eval_shape(LeNet().init, jax.random.key(0), images)
  >>> sum(leaf.size for leaf in jax.tree.leaves(variables['params']))
  61706
  """

  num_classes: int = 10
  conv_form: str = 'auto'
  batch_norm: bool = False
  stats_axis: str | tuple[str, ...] | None = None

  @nn.compact
  def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
    """Maps float images `[batch, 32, 32]` or `[batch, 32, 32, channels]` to logits `[batch, num_classes]`."""
    chex.assert_rank(images, {3, 4})

    def normalise(x, axis=-1):
      if not self.batch_norm:
        return x
      axes: Any = self.stats_axis  # flax's annotation lacks tuples of axes
      return nn.BatchNorm(not train, axis=axis, momentum=0.9, axis_name=axes)(x)

    images = images[..., None] if images.ndim == 3 else images
    layers = [
      convolution.ConvWeights(6, (5, 5), name='Conv_0')(images.shape[-1]),
      convolution.ConvWeights(16, (5, 5), name='Conv_1')(6),
    ]
    form = self.conv_form
    if self.batch_norm and choose_form(form) is None:
      form = 'xla'  # flax's modules cannot run inside JAX's choice between platforms
    features = {name: functools.partial(function, normalise) for name, function in _FEATURES.items()}
    x = call_form(form, features, images, layers)
    x = normalise(nn.relu(nn.Dense(120)(x)))
    x = normalise(nn.relu(nn.Dense(84)(x)))
    return nn.Dense(self.num_classes)(x)


def _xla_features(normalise, x, layers):
  for kernel, bias in layers:
    x = lax.conv_general_dilated(x, kernel, (1, 1), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    x = normalise(nn.max_pool(nn.relu(x + bias[None, None, None]), (2, 2), (2, 2)))
  return x.reshape(x.shape[0], -1)


def _patches_features(normalise, x, layers):
  x = conv_pool.to_blocks(x, 2 ** len(layers))
  for kernel, bias in layers:
    x = normalise(conv_pool.conv_pool_relu(x, kernel, bias), axis=2)  # the channel axis of the blocks
  return conv_pool.from_blocks(x)


_FEATURES = {'xla': _xla_features, 'patches': _patches_features}
