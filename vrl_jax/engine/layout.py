"""N workers on D devices or islands of devices, and how arrays are divided over them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrl_jax.algorithms.core.axes import DEVICE_AXIS
from vrl_jax.engine.island import ISLAND_AXIS, along, divided_axis, spec_in_island

Sharding = Callable[[tuple[int, ...]], NamedSharding]


@dataclasses.dataclass(frozen=True)
class Layout:
  """N workers on D devices or islands, and the shardings of their arrays; `Placement` puts arrays there.

  Attributes:
    devices: the D·M devices, in the order of the workers.
    workers_per_device: N/D.
    devices_per_island: M.
    island: one of `vrl_jax.engine.island.MODES`.

  >>> layout = Layout(tuple(jax.devices()[:1]), workers_per_device=4)
  >>> layout.workers, layout.islands, layout.local_workers
  (4, 1, range(0, 4))
  """

  devices: tuple[jax.Device, ...]
  workers_per_device: int
  devices_per_island: int = 1
  island: str = 'replicated'

  @property
  def islands(self) -> int:
    """D."""
    return len(self.devices) // self.devices_per_island

  @property
  def workers(self) -> int:
    """N."""
    return self.islands * self.workers_per_device

  @property
  def platform(self) -> str:
    """The platform of the devices, such as 'cpu'."""
    return self.devices[0].platform

  @property
  def local_devices(self) -> tuple[jax.Device, ...]:
    """This process's devices."""
    return tuple(self.devices[index] for index in self._local_indices)

  @functools.cached_property
  def _local_indices(self) -> list[int]:
    return [index for index, device in enumerate(self.devices) if device.process_index == jax.process_index()]

  @property
  def local_islands(self) -> range:
    """The indices from 0 to D − 1 of the devices, or islands, that this process has, or has a part of."""
    local = self._local_indices
    return range(local[0] // self.devices_per_island, local[-1] // self.devices_per_island + 1)

  @property
  def is_local(self) -> bool:
    """Whether all devices belong to this process."""
    return len(self._local_indices) == len(self.devices)

  @property
  def local_workers(self) -> range:
    """The workers on this process's devices."""
    local, each = self.local_islands, self.workers_per_device
    return range(local.start * each, local.stop * each)

  @functools.cached_property
  def mesh(self) -> Mesh:
    """The devices [D], or islands [D, M]."""
    if self.devices_per_island == 1:
      return Mesh(np.array(self.devices), (DEVICE_AXIS,))
    return Mesh(np.array(self.devices).reshape(-1, self.devices_per_island), (DEVICE_AXIS, ISLAND_AXIS))

  @property
  def sharding(self) -> NamedSharding:
    """The sharding of an array with leading axis D, one slice per device; the results of pmap have the same."""
    return NamedSharding(self.mesh, PartitionSpec(DEVICE_AXIS))

  def state_sharding(self, shape: tuple[int, ...], lead: int = 2) -> NamedSharding:
    """The sharding of an array of the state [D, N/D, ...], or of a model [D, ...] with `lead=1`."""
    if self.devices_per_island == 1:
      return self.sharding
    return self._sharding(lead, spec_in_island(shape[lead:], self.devices_per_island, self.island))

  def batch_sharding(self, shape: tuple[int, ...], axis: int = 4) -> NamedSharding:
    """The sharding of items [D, N/D, rounds, k, batch, ...]: the mini-batches are divided if that is possible."""
    if self.devices_per_island == 1 or len(shape) <= axis or shape[axis] % self.devices_per_island:
      return self.sharding
    return self._sharding(1, along(axis - 1))

  def _sharding(self, lead, spec):
    return NamedSharding(self.mesh, PartitionSpec(DEVICE_AXIS, *[None] * (lead - 1), *spec))

  def constrain(self, tree: Any, lead: int = 0) -> Any:
    """In a program: divides a worker's leaves over its island, or keeps them whole there; nothing without islands.

    Args:
      tree: leaves of a state, a model or the like.
      lead: the number of axes before those of the worker.
    """
    if self.devices_per_island == 1:
      return tree

    def one(x: jax.Array) -> jax.Array:
      spec = spec_in_island(x.shape[lead:], self.devices_per_island, self.island)
      return lax.with_sharding_constraint(x, self._constraint(PartitionSpec(*[None] * lead, *spec)))

    return jax.tree.map(one, tree)

  def constrain_batch(self, batch: Any) -> Any:
    """In a program: divides a worker's mini-batch, leaves [batch, ...], over its island; nothing without islands."""
    if self.devices_per_island == 1:
      return batch
    divided = lambda x: x.ndim > 0 and divided_axis(x.shape[:1], self.devices_per_island) == 0
    spec = self._constraint(along(0))
    return jax.tree.map(lambda x: lax.with_sharding_constraint(x, spec) if divided(x) else x, batch)

  def _constraint(self, spec):
    return NamedSharding(self.mesh, spec) if self.islands == 1 else spec
