"""The state of all workers in parts: each process has those of its own devices, and reads and writes only them.

The parts together are what checkpoints store: leaves [N, ...], whatever devices and processes hold them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vrl_jax.cluster import processes
from vrl_jax.engine.layout import Layout
from vrl_jax.system.storage import checksum


def rows(state: Any, placement: Layout) -> Any:
  """Copies of leaves [D, N/D, ...] as leaves [N, ...]; nothing is sent.

  >>> from vrl_jax.engine.placement import place_workers
  >>> placement = place_workers(workers=4, devices=1)
  >>> rows(placement.split(np.zeros((4, 3))), placement).shape
  (4, 3)
  """

  def one(x: jax.Array) -> jax.Array:
    shape = (x.shape[0] * x.shape[1], *x.shape[2:])
    return _regrouped(x, shape, placement.state_sharding(shape, lead=1), lambda part: part.shape[1:])

  return jax.tree.map(one, state)


def from_rows(tree: Any, placement: Layout) -> Any:
  """The inverse of `rows`.

  >>> from vrl_jax.engine.placement import place_workers
  >>> placement = place_workers(workers=4, devices=1)
  >>> state = placement.split(np.arange(4.0))
  >>> from_rows(rows(state, placement), placement).tolist()
  [[0.0, 1.0, 2.0, 3.0]]
  """

  def one(x: jax.Array) -> jax.Array:
    shape = (placement.islands, placement.workers_per_device, *x.shape[1:])
    return _regrouped(x, shape, placement.state_sharding(shape), lambda part: (1, *part.shape))

  return jax.tree.map(one, tree)


def _regrouped(x, shape, sharding, shape_of):
  parts = [jnp.reshape(shard.data, shape_of(shard.data)) for shard in x.addressable_shards]
  return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def row_shapes(tree: Any, placement: Layout) -> Any:
  """Shapes and shardings of `rows`, of leaves that have the shapes [N, ...].

  >>> from vrl_jax.engine.placement import place_workers
  >>> row_shapes(np.zeros((4, 3), np.float32), place_workers(workers=4, devices=1)).shape
  (4, 3)
  """
  sharding = lambda x: placement.state_sharding(x.shape, lead=1)
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding(x)), tree)


def are_finite(tree: Any) -> bool:
  """Whether all numbers of this process's parts, or of NumPy leaves, are finite; true for None.

  >>> are_finite({'a': np.ones(3), 'b': jnp.array([0.0, jnp.inf])}), are_finite(None)
  (False, True)
  """
  return all(bool(np.isfinite(part).all()) for x in jax.tree.leaves(tree) for _, part in _own(x))


def checksums(tree: Any) -> list[int]:
  """The CRC-32 of every leaf [N, ...], of which each process has a part; all processes must call it.

  CRC-32 is affine over exclusive or: the checksum of an array is the exclusive or of those of its parts, each with zeros
  in place of the others, and, if their number is even, of that of zeros.

  >>> x = np.arange(6.0).reshape(3, 2)
  >>> checksums([x, jnp.zeros(())[None]]) == [checksum(x), checksum(np.zeros(1, np.float32))]
  True
  """
  leaves = jax.tree.leaves(tree)
  by_process = processes.collect([_checksum(x, _own(x)) for x in leaves])
  zeros = [_checksum(x, []) for x in leaves] if len(by_process) % 2 == 0 else [0] * len(leaves)
  combined = zeros
  for own in by_process:
    combined = [a ^ b for a, b in zip(combined, own, strict=True)]
  return combined


def _own(x):
  """[(index, NumPy part)] of the parts of this process, without those that another also has."""
  if not isinstance(x, jax.Array):
    return [((slice(None),) * np.ndim(x), np.asarray(x))]
  return [(shard.index, np.asarray(shard.data)) for shard in x.addressable_shards if shard.replica_id == 0]


def _checksum(x, parts):
  """The checksum of an array with zeros where it has no part, one row at a time."""
  value = 0
  zeros = np.zeros(x.shape[1:], x.dtype)
  for number in range(x.shape[0]):
    row = zeros
    for index, part in parts:
      first, last, _ = index[0].indices(x.shape[0])
      if first <= number < last:
        row = row.copy() if row is zeros else row
        row[index[1:]] = part[number - first]
    value = checksum(row, value)
  return value
