"""Many virtual devices on few cores: nobody who imports vrl_jax meets JAX's dead-lock."""

import os
import subprocess
import sys

import pytest

_ROUNDS = """
import sys
import vrl_jax
import jax
jax.config.update('jax_num_cpu_devices', 8)
import jax.numpy as jnp, optax

algorithm = vrl_jax.local_sgd(optax.sgd(0.01))

def one_round(x, state):
  for _ in range(2):
    updates, state = algorithm.update(x, state, x)
    x = optax.apply_updates(x, updates)
  return algorithm.communicate(x, state)

one_round = jax.pmap(one_round, axis_name=vrl_jax.AXIS)
x = jnp.ones((8, 4))
state = jax.pmap(algorithm.init)(x)
for _ in range(int(sys.argv[1])):
  x, state = one_round(x, state)  # nothing waits
print('finished', float(x.sum()))
"""


def _python(code, *args, timeout=60, **environment):
  ours = ('PJRT_NPROC', 'XLA_FLAGS', 'JAX_NUM_CPU_DEVICES')
  clean = {name: value for name, value in os.environ.items() if name not in ours}
  command = [sys.executable, '-c', code, *map(str, args)]
  done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=timeout)
  assert done.returncode == 0, done.stderr[-2000:]
  return done.stdout.split()


def test_thousands_of_unblocked_rounds_finish():
  assert _python(_ROUNDS, 3000, timeout=600)[0] == 'finished'


_ENGINE = """
import sys
from vrl_jax import arrangement, devices, rounds
devices.prepare({devices})
import numpy as np, optax, vrl_jax

algorithm = vrl_jax.vrl_sgd(optax.sgd(0.01), axis_name=rounds.AXES)
supply = rounds.Supply(data=None, fetch=lambda data, item: item)
loss = lambda x, frozen, target, rng: ((x - target) ** 2).sum()
engine = rounds.Engine(algorithm, loss, arrangement.arrange(workers=8, devices={devices}), supply)
items = engine.arrangement.split(np.ones((8, 1, 2, 1), np.float32))
state = engine.init(np.zeros({size}, np.float32))
for i in range(int(sys.argv[1])):
  state, _ = engine.run(state, items, 1)  # nothing waits
  if i % 3 == 0:
    model = engine.consensus(state)
print('finished')
"""


@pytest.mark.parametrize('devices, size', [(2, 4), (2, 100_000), (8, 4)])
def test_the_engine_needs_no_more_than_a_thread_a_device(devices, size):
  code = _ENGINE.format(devices=devices, size=size)
  assert _python(code, 2000, timeout=600, PJRT_NPROC=str(devices)) == ['finished']


_PRINT = """
import os
{first}
import vrl_jax
{then}
print(os.environ.get('PJRT_NPROC'))
"""


@pytest.mark.parametrize(
  ('first', 'then', 'environment', 'threads'),
  [
    ('', '', {}, '16'),
    ("import jax; jax.config.update('jax_num_cpu_devices', 12)", '', {}, '24'),
    ('', '', {'XLA_FLAGS': '--xla_force_host_platform_device_count=10'}, '20'),
    ('', 'vrl_jax.devices.prepare(1)', {}, 'None'),
    ('', 'vrl_jax.devices.prepare(10)', {}, '10'),
    ('', 'vrl_jax.devices.prepare(24)', {'PJRT_NPROC': '5'}, '5'),
  ],
)
def test_the_thread_pool_is_sized(first, then, environment, threads):
  if (os.cpu_count() or 1) > 8:
    pytest.skip('this machine has threads enough')
  assert _python(_PRINT.format(first=first, then=then), **environment) == [threads]
