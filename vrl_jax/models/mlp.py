"""A multi-layer perceptron with ReLU, as the paper trains it on features of Tiny ImageNet."""

from collections.abc import Sequence

import chex
import flax.linen as nn
import jax


class MLP(nn.Module):
  """Dense layers with ReLU between them.

  Attributes:
    num_classes: the number of logits.
    hidden: the sizes of the hidden layers.

  >>> model = MLP(num_classes=3, hidden=(4,))
  >>> params = model.init(jax.random.key(0), jax.numpy.ones((1, 2)))
  >>> model.apply(params, jax.numpy.ones((5, 2))).shape
  (5, 3)
  """

  num_classes: int = 200
  hidden: Sequence[int] = (1024,)

  @nn.compact
  def __call__(self, features: jax.Array) -> jax.Array:
    """Maps float features `[batch, inputs]` to logits `[batch, num_classes]`."""
    chex.assert_rank(features, 2)
    x = features
    for size in self.hidden:
      x = nn.relu(nn.Dense(size)(x))
    return nn.Dense(self.num_classes)(x)
