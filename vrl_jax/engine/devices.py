"""The number of virtual CPU devices, and the compilation cache."""

import jax

import vrl_jax.algorithms  # noqa: F401  # its import sizes the thread pool by a guess, which must not follow `prepare_devices`
from vrl_jax.cluster import processes
from vrl_jax.cpu.thread_pool import backend_started, guard_against_deadlock
from vrl_jax.cpu.virtual_devices import default_cpu_devices
from vrl_jax.errors import UserError
from vrl_jax.system.storage import cache_dir


def prepare_devices(
  num_cpu_devices: int | None = None, *, workers: int = 1, devices_per_worker: int | None = None
) -> None:
  """Configures JAX for a run; call it before anything uses a device, and after `jax.distributed.initialize`.

  Args:
    num_cpu_devices: the number of virtual CPU devices of all processes together; ignored on GPUs and TPUs. None chooses
      by `workers`, or keeps the devices if JAX has already started.
    workers: N.
    devices_per_worker: M; then there are by default M times as many.

  Raises:
    UserError: JAX has already started with fewer CPU devices.

  >>> prepare_devices(workers=8)  # at the top of a script or notebook
  >>> len(jax.devices()) >= 1
  True
  """
  if num_cpu_devices:
    num_cpu_devices = -(-num_cpu_devices // processes.count())  # `place_workers` refuses a remainder
  if backend_started():
    have = jax.local_devices()
    if num_cpu_devices and have[0].platform == 'cpu' and len(have) < num_cpu_devices:
      raise UserError(
        f'JAX has already started with {len(have)} CPU device(s) and {num_cpu_devices} are needed: call '
        f'vrl_jax.prepare_devices({num_cpu_devices}) before anything else uses JAX, or restart the process'
      )
    return
  islands = default_cpu_devices(max(1, workers // processes.count()))
  num_cpu_devices = num_cpu_devices or islands * (devices_per_worker or 1)
  guard_against_deadlock(num_cpu_devices)
  jax.config.update('jax_num_cpu_devices', num_cpu_devices)


def use_compilation_cache() -> None:
  """Keeps compiled programs in the user's cache directory, so that the second run does not compile.

  `python -m benchmarks scaling` on 2 cores, from the start of Python to the end of LeNet's second round: 5.7 s with an
  empty cache, 3.1 s with a full one.

  >>> before = jax.config.jax_compilation_cache_dir
  >>> use_compilation_cache()
  >>> jax.config.jax_compilation_cache_dir == str(cache_dir() / 'compiled')
  True
  >>> jax.config.update('jax_compilation_cache_dir', before)
  """
  jax.config.update('jax_compilation_cache_dir', str(cache_dir() / 'compiled'))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
