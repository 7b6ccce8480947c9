"""The shapes of a run's arrays on devices that need not be attached, to compile its programs for them."""

from typing import Any

import jax

from vrl_jax.engine.layout import Layout, Sharding


def divided(tree: Any, placement: Layout, sharding: Sharding | None = None) -> Any:
  """Shapes [D, n/D, ...] of leaves [1, n, ...]: the workers, or their examples, of one device divided over all.

  Args:
    tree: the leaves.
    placement: the devices, or islands.
    sharding: of a leaf, by its shape: `placement.batch_sharding` for items; None for leaves that are whole in an island.

  >>> from vrl_jax.engine.placement import place_workers
  >>> divided(jax.ShapeDtypeStruct((1, 8, 3), 'float32'), place_workers(workers=4, devices=1)).shape
  (1, 8, 3)
  """
  islands, sharding = placement.islands, sharding or (lambda shape: placement.sharding)
  return jax.tree.map(lambda x: _shape((islands, x.shape[1] // islands, *x.shape[2:]), x, sharding), tree)


def copied(tree: Any, placement: Layout) -> Any:
  """Shapes [D, ...] of leaves [1, ...]: a copy on each device, also of an island.

  >>> from vrl_jax.engine.placement import place_workers
  >>> copied(jax.ShapeDtypeStruct((1, 8, 3), 'float32'), place_workers(workers=4, devices=1)).shape
  (1, 8, 3)
  """
  return jax.tree.map(lambda x: _shape((placement.islands, *x.shape[1:]), x, lambda shape: placement.sharding), tree)


def _shape(shape, like, sharding):
  return jax.ShapeDtypeStruct(shape, like.dtype, sharding=sharding(shape))
