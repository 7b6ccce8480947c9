"""Islands: the devices of a worker that has several, and how its arrays are divided over them.

The workers' axis of the mesh is mapped by hand, the island's axis is left to JAX's partitioner. So what a worker computes
is what it would compute on one device, whatever its loss, batch statistics or random numbers are; the constraints here
only decide which device holds and computes what.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from vrl_jax.algorithms.core.axes import DEVICE_AXIS

ISLAND_AXIS = 'island'
"""The name of the axis of the devices of an island."""

MODES = ('replicated', 'sharded')
"""Whether every device of an island holds the parameters, Δ and optimizer state, or each a part of them (FSDP)."""


def divided_axis(shape: tuple[int, ...], devices: int) -> int | None:
  """The axis along which the mode 'sharded' divides an array over an island.

  Of the axes that the number of devices divides, the longest, and of equally long ones the first; None, for scalars and
  for arrays without such an axis, which are replicated.

  >>> divided_axis((512, 2048), 4), divided_axis((6, 5), 2), divided_axis((7, 3), 2), divided_axis((), 2)
  (1, 0, None, None)
  """
  fitting = [axis for axis, length in enumerate(shape) if length and length % devices == 0]
  return max(fitting, key=lambda axis: (shape[axis], -axis), default=None)


def spec_in_island(shape: tuple[int, ...], devices: int, mode: str) -> PartitionSpec:
  """How an array of one worker is divided over its island: see `MODES` and :func:`divided_axis`.

  >>> tuple(spec_in_island((512, 2048), 4, 'sharded')), tuple(spec_in_island((512, 2048), 4, 'replicated'))
  ((None, 'island'), ())
  """
  return along(divided_axis(shape, devices) if mode == 'sharded' else None)


def along(axis: int | None) -> PartitionSpec:
  """The partition of an array whose axis `axis` is divided over an island; None for an array that is not divided.

  >>> tuple(along(2)), tuple(along(None))
  ((None, None, 'island'), ())
  """
  return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, ISLAND_AXIS)


def first_island(x: jax.Array) -> np.ndarray:
  """The slice of an array [D, ...] of this process's first island, assembled from the devices of the island.

  If islands extend over several processes, all of these must call it.

  >>> from vrl_jax.engine.placement import place_workers
  >>> first_island(place_workers(workers=1).replicate(np.arange(3.0, dtype=np.float32)))
  array([0., 1., 2.], dtype=float32)
  """
  first = x.addressable_shards[0]
  if first.data.shape[1:] == x.shape[1:]:
    return np.asarray(first.data)[0]
  mesh = x.sharding.mesh  # type: ignore[attr-defined]  # a NamedSharding, as all arrays of islands
  if any(len({device.process_index for device in island}) > 1 for island in mesh.devices):
    together = NamedSharding(mesh, PartitionSpec(DEVICE_AXIS))
    return first_island(jax.jit(lambda x: x, out_shardings=together)(x))
  out: np.ndarray[Any, Any] = np.empty(x.shape[1:], x.dtype)
  for shard in x.addressable_shards:
    if shard.index[0] == first.index[0]:
      out[shard.index[1:]] = np.asarray(shard.data)[0]
  return out
