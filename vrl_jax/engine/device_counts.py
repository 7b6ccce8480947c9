"""How many devices a run uses, and how many of them each island has."""

import jax

from vrl_jax.errors import UserError


def device_counts(
  workers: int,
  available: int,
  *,
  processes: int = 1,
  devices: int | None = None,
  devices_per_worker: int | None = None,
  platform: str = 'cpu',
  batch_size: int | None = None,
) -> tuple[int, int]:
  """The number of devices, and of those of an island.

  Args:
    workers: N.
    available: the devices that each process has.
    processes: their number.
    devices: the user's choice of their number, over all processes; None for as many as possible.
    devices_per_worker: the user's choice of the size of an island. None is 1 if `devices` is given and on CPU, whose
      virtual devices share the cores; else as many as there are for each worker, or for each group of workers.
    platform: of the devices.
    batch_size: the default size of an island divides it; None if it is not known.

  >>> device_counts(8, 8, platform='gpu'), device_counts(2, 8, platform='gpu'), device_counts(2, 8)
  ((8, 1), (8, 4), (2, 1))
  >>> device_counts(4, 8, devices=8, devices_per_worker=4)  # two islands, each of two workers
  (8, 4)
  """
  listed = f'{processes} times {available}' if processes > 1 else f'{available}'
  if devices is not None and devices > processes * available:
    raise UserError(f'devices={devices}, but JAX has {listed}: {platform}')
  if devices_per_worker is None or devices_per_worker == 1:
    chosen = _single(workers, available, processes, devices)
    if devices is not None or devices_per_worker or platform == 'cpu':
      return chosen, 1
    most = processes * available // chosen
    size = max(m for m in range(1, most + 1) if batch_size is None or batch_size % m == 0)
    return chosen * size, size
  if batch_size is not None and batch_size % devices_per_worker:
    raise UserError(f'batch_size={batch_size} cannot be divided over devices_per_worker={devices_per_worker}')
  if devices is None:
    devices = next(
      (n for n in range(processes * available, 0, -1) if _fits(workers, n, devices_per_worker, processes)), None
    )
    if devices is None:
      raise UserError(f'devices_per_worker={devices_per_worker} does not fit: JAX has {listed} device(s)')
  elif not _fits(workers, devices, devices_per_worker, processes):
    over = f' of {processes} processes' if processes > 1 else ''
    raise UserError(
      f'workers={workers} cannot be divided over devices={devices}{over} in islands of '
      f'devices_per_worker={devices_per_worker}: choose devices = devices_per_worker times a divisor of {workers}'
    )
  return devices, devices_per_worker


def find_devices() -> list[jax.Device]:
  """All devices of JAX, whose backend starts here if it has not started yet.

  >>> len(find_devices()) >= 1
  True
  """
  try:
    return jax.devices()
  except (RuntimeError, AssertionError) as error:  # the latter for JAX_PLATFORMS=cuda without a GPU
    if isinstance(error, jax.errors.JaxRuntimeError):  # also raised if another process has died
      raise
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]  # typed without its options
    reason = str(error) or 'there is no such device'
    raise UserError(f'JAX_PLATFORMS={platforms!r}: JAX cannot start ({reason}): unset it or choose another') from error


def _single(workers, available, processes, devices):
  """The number of devices if no worker has several."""
  if workers % processes:
    raise UserError(f'workers={workers} cannot be divided over {processes} processes')
  if devices is None:
    devices = processes * max(d for d in range(1, available + 1) if (workers // processes) % d == 0)
  if devices < 1 or workers % devices:
    raise UserError(
      f'workers={workers} cannot be divided over devices={devices}: choose a divisor of {workers}, or for workers of '
      'several devices devices_per_worker'
    )
  if devices % processes:
    raise UserError(f'devices={devices} cannot be divided over {processes} processes: choose a multiple of {processes}')
  return devices


def _fits(workers, devices, size, processes):
  """Whether the islands are equally many in every process, or every island is in equally many processes."""
  if devices % size or devices % processes or workers % (devices // size):
    return False
  each = devices // processes
  return each % size == 0 or size % each == 0
