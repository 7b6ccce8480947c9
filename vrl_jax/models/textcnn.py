"""The convolutional text classifier (Kim, 2014) on frozen word vectors, as the paper trains it on DBPedia."""

from collections.abc import Sequence

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.cpu import winograd
from vrl_jax.cpu.conv_form import call_form
from vrl_jax.models import convolution


class TextCNN(nn.Module):
  """Convolutions over windows of 3, 4 and 5 words, ReLU, max-pooling over time, dropout and a dense layer.

  The word vectors are not parameters. They are the variable `embedding` `[vocabulary, embedding_dim]` of the collection
  `constants`, to be passed as `apply({'params': ..., 'constants': {'embedding': ...}}, ...)`; `init` makes a
  placeholder with one row.

  Attributes:
    num_classes: the number of logits.
    features: the number of channels per window width.
    widths: the window widths, in words.
    embedding_dim: the length of a word vector.
    dropout_rate: the fraction of channels dropped in training.
    conv_form: 'xla', 'patches' or 'auto' (see `vrl_jax.cpu.conv_form`); it changes neither parameters nor results.

  >>> tokens = jax.ShapeDtypeStruct((1, 50), 'int32')
  >>> variables = jax.eval_shape(TextCNN().init, jax.random.key(0), tokens)
  >>> sorted(variables), variables['params']['Dense_0']['kernel'].shape
  (['constants', 'params'], (300, 14))
  """

  num_classes: int = 14
  features: int = 100
  widths: Sequence[int] = (3, 4, 5)
  embedding_dim: int = 50
  dropout_rate: float = 0.5
  conv_form: str = 'auto'

  @nn.compact
  def __call__(self, tokens: jax.Array, train: bool = False) -> jax.Array:
    """Maps integer tokens `[batch, words]` to logits `[batch, num_classes]`; `train=True` needs the rng `dropout`."""
    chex.assert_rank(tokens, 2)
    chex.assert_type(tokens, int)
    table = self.variable('constants', 'embedding', jnp.zeros, (1, self.embedding_dim))
    layers = [
      convolution.ConvWeights(self.features, (width,), name=f'Conv_{i}')(self.embedding_dim)
      for i, width in enumerate(self.widths)
    ]
    x = nn.relu(call_form(self.conv_form, _CONV_MAX, table.value[tokens], layers))
    x = nn.Dropout(self.dropout_rate, deterministic=not train)(x)
    return nn.Dense(self.num_classes)(x)


def _xla_conv_max(words, layers):
  maps = [
    lax.conv_general_dilated(words, kernel, (1,), 'VALID', dimension_numbers=('NWC', 'WIO', 'NWC')) + bias[None, None]
    for kernel, bias in layers
  ]
  return jnp.concatenate([x.max(axis=1) for x in maps], axis=-1)


_CONV_MAX = {'xla': _xla_conv_max, 'patches': winograd.conv_max}
