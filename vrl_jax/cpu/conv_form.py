"""The choice between XLA's convolutions and those of this room."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import lax

FORMS = ('auto', 'xla', 'patches')


def choose_form(form: str = 'auto') -> str | None:
  """Resolves 'auto' to the fastest implementation on the devices of the program: 'patches' on CPU, 'xla' elsewhere.

  XLA's CPU backend runs a convolution inside `lax.scan` as a plain loop, and a convolution with one kernel per worker
  (vmap) as a grouped convolution, which is slower still. `python -m benchmarks choices` on 2 cores (AVX-512), 8 workers
  as 2 devices x 4, rounds of Local SGD, examples per second:

    LeNet, b = 32, k = 20:   xla 3,247, patches 67,190
    TextCNN, b = 64, k = 4:  xla   720, patches 31,407

  GPUs and TPUs have fast convolution kernels.

  Args:
    form: 'auto', 'xla' or 'patches'.

  Returns:
    'xla' or 'patches'; None for 'auto' in a program that is traced for no particular devices. Inside `jax.pmap`,
    `jax.shard_map`, the engine and `jax.set_mesh`, the devices are those of the mesh, even if the process has others.

  >>> choose_form('xla'), choose_form()
  ('xla', None)
  >>> devices = jax.make_mesh((1,), ('x',), devices=jax.devices('cpu')[:1])
  >>> with jax.sharding.use_abstract_mesh(devices.abstract_mesh):
  ...   choose_form()
  'patches'
  """
  if form not in FORMS:
    raise ValueError(f'conv_form={form!r}, must be one of {", ".join(FORMS)}')
  if form != 'auto':
    return form
  device = jax.sharding.get_abstract_mesh().abstract_device
  return None if device is None else 'patches' if device.device_kind == 'cpu' else 'xla'


def call_form(form: str, functions: Mapping[str, Callable[..., Any]], *args: Any) -> Any:
  """Calls `functions['xla']` or `functions['patches']`, as :func:`choose_form` decides.

  Where it cannot decide, the program has both, and JAX keeps one when the program is lowered for a platform; so a
  function that is exported for another platform gets that platform's.

  Args:
    form: 'auto', 'xla' or 'patches'.
    functions: two functions of arrays with equal results.
    *args: their arguments.

  >>> functions = {'xla': lambda x: x * x, 'patches': lambda x: x**2}
  >>> call_form('xla', functions, 3.0), float(call_form('auto', functions, 3.0))
  (9.0, 9.0)
  """
  chosen = choose_form(form)
  if chosen is not None:
    return functions[chosen](*args)
  return lax.platform_dependent(*args, cpu=functions['patches'], default=functions['xla'])
