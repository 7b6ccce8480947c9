"""The choice between XLA's convolutions and those of this room."""

import jax

FORMS = ('auto', 'xla', 'patches')


def choose_form(form: str = 'auto') -> str:
  """Resolves 'auto' to the fastest implementation on this backend: 'patches' on CPU, 'xla' elsewhere.

  XLA's CPU backend runs a convolution inside `lax.scan` as a plain loop, and a convolution with one kernel per worker
  (vmap) as a grouped convolution, which is slower still. `python -m benchmarks choices` on 2 cores (AVX-512), 8 workers
  as 2 devices x 4, rounds of Local SGD, examples per second:

    LeNet, b = 32, k = 20:   xla 3,247, patches 67,190
    TextCNN, b = 64, k = 4:  xla   720, patches 31,407

  GPUs and TPUs have fast convolution kernels.

  Args:
    form: 'auto', 'xla' or 'patches'; only 'auto' depends on the backend.

  Returns:
    'xla' or 'patches'.

  >>> choose_form('xla'), choose_form() == ('patches' if jax.default_backend() == 'cpu' else 'xla')
  ('xla', True)
  """
  if form not in FORMS:
    raise ValueError(f'conv_form={form!r}, must be one of {", ".join(FORMS)}')
  if form != 'auto':
    return form
  return 'patches' if jax.default_backend() == 'cpu' else 'xla'
