"""The parameters of a convolution, and the choice of the form in which it is computed."""

from collections.abc import Sequence

import flax.linen as nn
import jax

FORMS = ('auto', 'xla', 'patches')


def choose_form(form: str = 'auto') -> str:
  """Resolves 'auto' to the fastest form of convolution on this backend: 'patches' on CPU, 'xla' elsewhere.

  XLA's CPU backend runs a convolution inside `lax.scan` as a plain loop, and one with a kernel per worker (vmap) as a
  grouped convolution, slower still. `python -m benchmarks choices` on 2 cores (AVX-512), 8 workers as 2 devices x 4,
  rounds of Local SGD, examples per second:

    LeNet, b = 32, k = 20:   xla 3,247, patches 67,190
    TextCNN, b = 64, k = 4:  xla   720, patches 31,407

  GPUs and TPUs have real convolution kernels, so XLA's own form stays in use there.

  Args:
    form: 'auto', 'xla' or 'patches'; only 'auto' looks at the backend.

  Returns:
    'xla' or 'patches'.

  >>> choose_form('xla'), choose_form() == ('patches' if jax.default_backend() == 'cpu' else 'xla')
  ('xla', True)
  """
  if form not in FORMS:
    raise ValueError(f'conv_form is {form!r}; it must be one of {", ".join(map(repr, FORMS))}')
  if form != 'auto':
    return form
  return 'patches' if jax.default_backend() == 'cpu' else 'xla'


class ConvWeights(nn.Module):
  """The kernel and the bias that `nn.Conv` would have, for a convolution that is computed elsewhere.

  Named `Conv_<i>`, it gives the same names, layouts and initial values as `nn.Conv`, so a checkpoint does not depend on
  the form of the convolution.

  Attributes:
    features: the number of output maps.
    kernel_size: the sides of the window.

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
