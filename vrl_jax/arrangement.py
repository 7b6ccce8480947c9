"""Where the workers are: N workers on D devices, and how arrays are laid out over them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrl_jax.errors import UserError

DEVICE_AXIS = 'devices'


class Arrangement(NamedTuple):
  """N workers on D devices; worker i is on device i // (N/D).

  Attributes:
    devices: the devices, in the order of the workers.
    workers_per_device: N/D.
  """

  devices: tuple[jax.Device, ...]
  workers_per_device: int

  @property
  def workers(self) -> int:
    """N."""
    return len(self.devices) * self.workers_per_device

  @property
  def sharding(self) -> NamedSharding:
    """The layout of an array with leading axis D: a slice a device, just as pmap lays out its own results."""
    return NamedSharding(Mesh(np.array(self.devices), (DEVICE_AXIS,)), PartitionSpec(DEVICE_AXIS))

  def split(self, tree: Any) -> Any:
    """Lays leaves [N, ...] out as [D, N/D, ...]."""
    shape = (len(self.devices), self.workers_per_device)
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x).reshape(shape + x.shape[1:]), self.sharding), tree)

  def replicate(self, tree: Any) -> Any:
    """Gives every device a copy: leaves [...] become [D, ...]."""

    def copies(x):
      x = np.asarray(x)
      shards = [jax.device_put(x[None], device) for device in self.devices]
      return jax.make_array_from_single_device_arrays((len(shards), *x.shape), self.sharding, shards)

    return jax.tree.map(copies, tree)

  def pmap(self, fun: Callable, **kwargs) -> Callable:
    """Maps `fun` over the devices, axis 0 of every argument: the one pmap of the project."""
    return jax.pmap(fun, axis_name=DEVICE_AXIS, devices=self.devices, **kwargs)


def arrange(workers: int, devices: int | None = None) -> Arrangement:
  """Spreads the workers over the devices that JAX has.

  Args:
    workers: N.
    devices: how many devices to use; None takes as many as divide the workers.

  Returns:
    The arrangement: one worker a device where there are as many devices as workers.
  """
  available = jax.devices()
  if devices is None:
    devices = max(d for d in range(1, min(workers, len(available)) + 1) if workers % d == 0)
  if devices > len(available):
    raise UserError(f'devices={devices}, but JAX has {len(available)}: {available[0].platform}')
  if devices < 1 or workers % devices:
    raise UserError(f'workers={workers} cannot be divided over devices={devices}: choose a divisor of {workers}')
  return Arrangement(tuple(available[:devices]), workers // devices)


def first_copy(tree: Any) -> Any:
  """One device's slice of leaves [D, ...], as NumPy arrays; indexing `x[0]` would gather over the devices."""
  return jax.tree.map(lambda x: np.asarray(x.addressable_shards[0].data)[0], tree)
