"""The process's devices: virtual CPU devices that do not dead-lock, and how many to use.

With several virtual devices on few cores, JAX's CPU client (0.10) can run out of threads: each device's part of a
program holds one while it waits for the others in a collective, and a loop that does not block aborts after 40 s, or
hangs for ever across processes. `PJRT_NPROC` sizes the pool. It is read once, when the backend starts, so
`import vrl_jax` already sets it for anybody's loop over eight devices, two threads each, which suffices. `prepare` is for
our own programs, which run one at a time (`arrangement.in_turn`) and need one thread a device; with several processes two.

Threads beyond the cores cost much, because idle ones spin. `python -m benchmarks choices`, 2 devices on 2 cores, examples
per second with 2, 4 and 16 threads: LeNet 74,471, 51,322, 35,713; TextCNN 37,823, 25,281, 19,200; MLP 29,048, 19,191,
11,152.
"""

import os
import re

import jax

from vrl_jax import hosts
from vrl_jax.data.cache import cache_dir
from vrl_jax.errors import UserError

_DEFAULT_VIRTUAL_DEVICES = 8
_COLLECTIVE_TIMEOUTS = (
  '--xla_cpu_collective_call_warn_stuck_timeout_seconds=120',
  '--xla_cpu_collective_call_terminate_timeout_seconds=600',
)
_ours = None  # the value of PJRT_NPROC that this module set, so that a user's own is left alone


def backend_started() -> bool:
  """Whether JAX has already fixed its devices.

  >>> _ = jax.devices()  # whoever asks for the devices starts it
  >>> backend_started()
  True
  """
  return jax._src.xla_bridge.backends_are_initialized()


def guard_against_deadlock(num_cpu_devices: int | None = None) -> None:
  """Sizes the CPU client's thread pool for `num_cpu_devices` virtual devices; runs at import with a safe guess.

  >>> guard_against_deadlock(8)  # once JAX has started it changes nothing
  >>> '--xla_cpu_collective_call_terminate_timeout_seconds' in os.environ['XLA_FLAGS']
  True
  """
  global _ours
  if backend_started() or os.environ.get('PJRT_NPROC') != _ours:
    return
  devices = num_cpu_devices or max(_requested_cpu_devices(), _DEFAULT_VIRTUAL_DEVICES)
  threads = devices if num_cpu_devices and hosts.count() == 1 else 2 * devices
  if (devices > 1 or hosts.count() > 1) and threads > (os.cpu_count() or 1):
    _ours = os.environ['PJRT_NPROC'] = str(threads)
  elif _ours is not None:
    del os.environ['PJRT_NPROC']
    _ours = None
  flags = os.environ.get('XLA_FLAGS', '')
  missing = [flag for flag in _COLLECTIVE_TIMEOUTS if flag.split('=')[0] not in flags]
  os.environ['XLA_FLAGS'] = ' '.join([flags, *missing]).strip()


def untouched_environment() -> dict[str, str]:
  """The environment for a child process that sizes its own thread pool.

  >>> set(untouched_environment()) <= set(os.environ)
  True
  """
  ours = ('PJRT_NPROC',) if _ours is not None else ()
  return {name: value for name, value in os.environ.items() if name not in ours}


def _requested_cpu_devices() -> int:
  in_flags = re.search(r'--xla_force_host_platform_device_count=(\d+)', os.environ.get('XLA_FLAGS', ''))
  return max(jax.config.jax_num_cpu_devices or 1, int(in_flags[1]) if in_flags else 1)


def prepare(num_cpu_devices: int | None = None, *, workers: int = 1) -> None:
  """Readies JAX for a run; call it before anything touches a device, and after `jax.distributed.initialize`.

  Args:
    num_cpu_devices: the number of virtual CPU devices (means nothing to GPUs and TPUs), of all processes together; None
      takes what suits `workers`, or what there is if JAX has started already.
    workers: N.

  Raises:
    UserError: JAX has already started with fewer CPU devices than asked for.

  >>> prepare(workers=8)  # at the top of a script or notebook
  >>> len(jax.devices()) >= 1
  True
  """
  if num_cpu_devices:
    num_cpu_devices = -(-num_cpu_devices // hosts.count())  # `arrange` refuses what cannot be divided
  if backend_started():
    have = jax.local_devices()
    if num_cpu_devices and have[0].platform == 'cpu' and len(have) < num_cpu_devices:
      raise UserError(
        f'JAX has already started with {len(have)} CPU device(s) and {num_cpu_devices} are needed: call '
        f'vrl_jax.devices.prepare({num_cpu_devices}) before anything else touches JAX, or restart the process'
      )
    return
  num_cpu_devices = num_cpu_devices or default_cpu_devices(max(1, workers // hosts.count()))
  guard_against_deadlock(num_cpu_devices)
  jax.config.update('jax_num_cpu_devices', num_cpu_devices)


def default_cpu_devices(workers: int) -> int:
  """The number of virtual CPU devices for `workers`: one a core, as far as it divides the workers.

  `python -m benchmarks choices` on 2 cores, examples per second of 8 workers as 2 devices x 4, as 8 x 1 and as 1 x 8:
  LeNet 75,548, 64,600, 42,298; TextCNN 36,754, 31,979, 22,469; an MLP of 2.3 M parameters 29,134, 26,240, 16,050.

  >>> default_cpu_devices(workers=1), 6 % default_cpu_devices(workers=6)
  (1, 0)
  """
  return max(d for d in range(1, min(workers, os.cpu_count() or 1) + 1) if workers % d == 0)


def use_compilation_cache() -> None:
  """Keeps compiled programs in the user's cache folder, so that the second run starts at once.

  `python -m benchmarks scaling` on 2 cores, from the start of Python to the end of LeNet's second round: 5.7 s with an empty
  cache, 3.1 s with a full one.

  >>> before = jax.config.jax_compilation_cache_dir
  >>> use_compilation_cache()
  >>> jax.config.jax_compilation_cache_dir == str(cache_dir() / 'compiled')
  True
  >>> jax.config.update('jax_compilation_cache_dir', before)
  """
  jax.config.update('jax_compilation_cache_dir', str(cache_dir() / 'compiled'))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
