"""LeNet-5 with ReLU and max-pooling, as the paper trains it on MNIST."""

import flax.linen as nn
import jax
from jax import lax

from vrl_jax.models import convolution, tiles


class LeNet(nn.Module):
  """5x5 convolutions with 6 and 16 maps, each with ReLU and a 2x2 max-pool, then dense layers of 120, 84 and classes.

  Attributes:
    num_classes: the number of logits.
    conv_form: 'xla', 'patches' or 'auto' (see `convolution.choose_form`); it changes neither parameters nor results.
  """

  num_classes: int = 10
  conv_form: str = 'auto'

  @nn.compact
  def __call__(self, images: jax.Array) -> jax.Array:
    """Maps float images `[batch, 32, 32]` or `[batch, 32, 32, channels]` to logits `[batch, num_classes]`."""
    images = images[..., None] if images.ndim == 3 else images
    layers = [
      convolution.ConvWeights(6, (5, 5), name='Conv_0')(images.shape[-1]),
      convolution.ConvWeights(16, (5, 5), name='Conv_1')(6),
    ]
    features = _FEATURES[convolution.choose_form(self.conv_form)]
    x = features(images, layers)
    x = nn.relu(nn.Dense(120)(x))
    x = nn.relu(nn.Dense(84)(x))
    return nn.Dense(self.num_classes)(x)


def _xla_features(x, layers):
  for kernel, bias in layers:
    x = lax.conv_general_dilated(x, kernel, (1, 1), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    x = nn.max_pool(nn.relu(x + bias[None, None, None]), (2, 2), (2, 2))
  return x.reshape(x.shape[0], -1)


def _patches_features(x, layers):
  x = tiles.to_tiles(x, 2 ** len(layers))
  for kernel, bias in layers:
    x = tiles.conv_pool_relu(x, kernel, bias)
  return tiles.from_tiles(x)


_FEATURES = {'xla': _xla_features, 'patches': _patches_features}
