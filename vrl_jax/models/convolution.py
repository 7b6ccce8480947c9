"""The parameters of a convolution, and the choice of its implementation."""

from collections.abc import Sequence

import flax.linen as nn
import jax


class ConvWeights(nn.Module):
  """The kernel and the bias of `nn.Conv`, without the convolution.

  A module named `Conv_<i>` has the same parameter names, layouts and initial values as `nn.Conv`, so checkpoints do not
  depend on `conv_form`.

  Attributes:
    features: the number of output channels.
    kernel_size: the size of the kernel in each spatial dimension.

  >>> variables = ConvWeights(6, (5, 5)).init(jax.random.key(0), 1)
  >>> jax.tree.map(lambda x: x.shape, variables['params'])
  {'bias': (6,), 'kernel': (5, 5, 1, 6)}
  """

  features: int
  kernel_size: Sequence[int]

  @nn.compact
  def __call__(self, channels: int) -> tuple[jax.Array, jax.Array]:
    """Returns the kernel `[*kernel_size, channels, features]` and the bias `[features]`."""
    shape = (*self.kernel_size, channels, self.features)
    kernel = self.param('kernel', nn.linear.default_kernel_init, shape)
    return kernel, self.param('bias', nn.initializers.zeros_init(), (self.features,))
