"""Many virtual devices on few cores do not dead-lock, in loops of a user's own and in the engine."""

import os
import subprocess
import sys

import pytest
from support.launches import TIMEOUT

_ROUNDS = """
import sys
import vrl_jax.algorithms
import jax
jax.config.update('jax_num_cpu_devices', 8)
import jax.numpy as jnp, optax

algorithm = vrl_jax.local_sgd(optax.sgd(0.01))

def one_round(x, state):
  for _ in range(2):
    updates, state = algorithm.transform.update(x, state, x)
    x = optax.apply_updates(x, updates)
  return algorithm.communicate(x, state)

one_round = jax.pmap(one_round, axis_name=vrl_jax.AXIS)
x = jnp.ones((8, 4))
state = jax.pmap(algorithm.transform.init)(x)
for _ in range(int(sys.argv[1])):
  x, state = one_round(x, state)  # never blocks
print('finished', float(x.sum()))
"""


def _python(code, *args, timeout=TIMEOUT, **environment):
  set_here = ('PJRT_NPROC', 'XLA_FLAGS', 'JAX_NUM_CPU_DEVICES')
  clean = {name: value for name, value in os.environ.items() if name not in set_here}
  command = [sys.executable, '-c', code, *map(str, args)]
  done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=timeout)
  assert done.returncode == 0, done.stderr[-2000:]
  return done.stdout.split()


def test_thousands_of_unblocked_rounds_finish():
  assert _python(_ROUNDS, 3000)[0] == 'finished'


_ENGINES = """
import sys
from vrl_jax.engine import devices
devices.prepare_devices({devices})
import jax, numpy as np, optax, vrl_jax

algorithm = vrl_jax.vrl_sgd(optax.sgd(0.01), axis_name=vrl_jax.AXES)
supply = vrl_jax.Supply(data=None, fetch=lambda data, item: item)
loss = lambda x, frozen, target, rng: ((x - target) ** 2).sum()
placements = [vrl_jax.place_workers(workers=8, devices={devices}) for _ in range({placements})]
engines = [vrl_jax.Engine(algorithm, loss, placement, supply) for placement in placements]
items = placements[0].split(np.ones((8, 1, 2, 1), np.float32))
states = [engine.init(np.zeros({size}, np.float32)) for engine in engines]
for i in range(int(sys.argv[1])):
  for j, engine in enumerate(engines):
    states[j], _ = engine.run(states[j], items, 1)  # never blocks
    if i % 3 == 0:
      model = engine.consensus(states[j])
print('finished')
"""


@pytest.mark.parametrize('devices, size', [(2, 4), (2, 100_000), (8, 4)])
def test_an_engine_needs_one_thread_per_device(devices, size):
  code = _ENGINES.format(devices=devices, size=size, placements=1)
  assert _python(code, 2000, PJRT_NPROC=str(devices)) == ['finished']


def test_engines_with_placements_of_the_same_devices_do_not_need_more():
  code = _ENGINES.format(devices=2, size=100_000, placements=3)
  assert _python(code, 500, PJRT_NPROC='2') == ['finished']


_PRINT = """
import os
{first}
import vrl_jax.algorithms
{then}
print(os.environ.get('PJRT_NPROC'))
"""


@pytest.mark.parametrize(
  ('first', 'then', 'environment', 'threads'),
  [
    ('', '', {}, '16'),
    ("import jax; jax.config.update('jax_num_cpu_devices', 12)", '', {}, '24'),
    ('', '', {'XLA_FLAGS': '--xla_force_host_platform_device_count=10'}, '20'),
    ('', 'vrl_jax.prepare_devices(1)', {}, 'None'),
    ('', 'vrl_jax.prepare_devices(10)', {}, '10'),
    ('', 'vrl_jax.prepare_devices(24)', {'PJRT_NPROC': '5'}, '5'),
  ],
)
def test_the_thread_pool_is_sized(first, then, environment, threads):
  if (os.cpu_count() or 1) > 8:
    pytest.skip('this machine has enough cores')
  assert _python(_PRINT.format(first=first, then=then), **environment) == [threads]


def test_the_algorithms_keep_the_threads_that_prepare_devices_has_chosen():
  """They are imported when they are first used, after `prepare_devices` in most scripts; idle threads halve the speed."""
  code = 'import os, vrl_jax; vrl_jax.prepare_devices(4); vrl_jax.vrl_sgd; print(os.environ.get("PJRT_NPROC"))'
  assert _python(code) == [str(None if (os.cpu_count() or 1) >= 4 else 4)]
