"""The size of the CPU client's thread pool, so that virtual devices do not dead-lock.

With several virtual devices on few cores, JAX's CPU client (0.10) can run out of threads: each device's part of a
program holds one while it waits for the others in a collective. A loop of collectives that never blocks then aborts
after 40 s, or hangs forever across processes. `PJRT_NPROC` sets the size of the pool and is read once, when the backend
starts. There is no `jax.config` option for it, and nothing else protects a user's own loop over several virtual
devices, so importing the algorithms sets the variable: two threads per device suffice. Our own programs run one at a time
(`vrl_jax.cpu.serial_dispatch`) and need one thread per device, with several processes two.

More threads than cores are expensive, because idle ones spin. `python -m benchmarks choices`, 2 devices on 2 cores,
examples per second with 2, 4 and 16 threads: LeNet 74,471, 51,322, 35,713; TextCNN 37,823, 25,281, 19,200; MLP 29,048,
19,191, 11,152.
"""

import os
import re

import jax

from vrl_jax.cluster import processes
from vrl_jax.cpu.xla_flags import add_xla_flags

_DEFAULT_VIRTUAL_DEVICES = 8
_POOL_SIZE = 'PJRT_NPROC'
_POOL_SIZE_SET_HERE = 'VRL_JAX_PJRT_NPROC'  # the value set here; a different PJRT_NPROC is the user's and is kept
_COLLECTIVE_TIMEOUTS = (  # jaxlib 0.8 and newer
  '--xla_cpu_collective_call_warn_stuck_timeout_seconds=120',
  '--xla_cpu_collective_call_terminate_timeout_seconds=600',
)


def backend_started() -> bool:
  """Whether JAX has initialised its backend, so that the devices can no longer change.

  >>> _ = jax.devices()  # starts the backend
  >>> backend_started()
  True
  """
  # JAX has no public function for this: `jax.devices()` and its like start the backend.
  return jax._src.xla_bridge.backends_are_initialized()


def guard_against_deadlock(num_cpu_devices: int | None = None) -> None:
  """Sets `PJRT_NPROC` and longer collective timeouts for `num_cpu_devices` virtual devices; None is a safe guess.

  Importing `vrl_jax.algorithms` calls it with None, `vrl_jax.prepare_devices` with the actual number. A `PJRT_NPROC` set by the user
  is kept.

  >>> guard_against_deadlock(8)  # once JAX has started it changes nothing
  >>> '--xla_cpu_collective_call_terminate_timeout_seconds' in os.environ['XLA_FLAGS']
  True
  """
  if backend_started() or os.environ.get(_POOL_SIZE) not in (None, os.environ.get(_POOL_SIZE_SET_HERE)):
    return
  devices = num_cpu_devices or max(_requested_cpu_devices(), _DEFAULT_VIRTUAL_DEVICES)
  threads = devices if num_cpu_devices and processes.count() == 1 else 2 * devices
  if (devices > 1 or processes.count() > 1) and threads > (os.cpu_count() or 1):
    os.environ[_POOL_SIZE] = os.environ[_POOL_SIZE_SET_HERE] = str(threads)
  else:
    os.environ.pop(_POOL_SIZE, None)
    os.environ.pop(_POOL_SIZE_SET_HERE, None)
  # On busy cores the devices arrive at a collective far apart; XLA's default timeout would abort the process.
  add_xla_flags(*_COLLECTIVE_TIMEOUTS)


def _requested_cpu_devices() -> int:
  in_flags = re.search(r'--xla_force_host_platform_device_count=(\d+)', os.environ.get('XLA_FLAGS', ''))
  configured = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]  # JAX's config is typed without its options
  return max(configured or 1, int(in_flags[1]) if in_flags else 1)
