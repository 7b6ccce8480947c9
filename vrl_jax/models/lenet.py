"""LeNet-5 with ReLU and max-pooling, as the paper trains it on MNIST, and with batch normalisation."""

import chex
import flax.linen as nn
import jax
from jax import lax

from vrl_jax.models import convolution, tiles


class LeNet(nn.Module):
  """5x5 convolutions with 6 and 16 maps, each with ReLU and a 2x2 max-pool, then dense layers of 120, 84 and classes.

  Attributes:
    num_classes: the number of logits.
    conv_form: 'xla', 'patches' or 'auto' (see `convolution.choose_form`); it changes neither parameters nor results.
    batch_norm: whether each pool and each hidden layer is followed by batch normalisation.
    stats_axis: the mapped axes over which a batch's statistics are taken in training; None for a worker's own.

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

    def normalised(x, axis=-1):
      if not self.batch_norm:
        return x
      return nn.BatchNorm(not train, axis=axis, momentum=0.9, axis_name=self.stats_axis)(x)

    images = images[..., None] if images.ndim == 3 else images
    layers = [
      convolution.ConvWeights(6, (5, 5), name='Conv_0')(images.shape[-1]),
      convolution.ConvWeights(16, (5, 5), name='Conv_1')(6),
    ]
    features = _FEATURES[convolution.choose_form(self.conv_form)]
    x = features(images, layers, normalised)
    x = normalised(nn.relu(nn.Dense(120)(x)))
    x = normalised(nn.relu(nn.Dense(84)(x)))
    return nn.Dense(self.num_classes)(x)


def _xla_features(x, layers, normalised):
  for kernel, bias in layers:
    x = lax.conv_general_dilated(x, kernel, (1, 1), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    x = normalised(nn.max_pool(nn.relu(x + bias[None, None, None]), (2, 2), (2, 2)))
  return x.reshape(x.shape[0], -1)


def _patches_features(x, layers, normalised):
  x = tiles.to_tiles(x, 2 ** len(layers))
  for kernel, bias in layers:
    x = normalised(tiles.conv_pool_relu(x, kernel, bias), axis=2)  # where the tiles have their channels
  return tiles.from_tiles(x)


_FEATURES = {'xla': _xla_features, 'patches': _patches_features}
