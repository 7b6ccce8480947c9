"""The shapes of a run's arrays on devices that need not be attached, to compile its programs for them."""

from typing import Any

import jax

from vrl_jax.engine.placement import Placement


def divided(tree: Any, placement: Placement) -> Any:
  """Shapes [D, n/D, ...] of leaves [1, n, ...]: the workers, or their examples, of one device divided over all.

  >>> from vrl_jax.engine.placement import place_workers
  >>> divided(jax.ShapeDtypeStruct((1, 8, 3), 'float32'), place_workers(workers=4, devices=1)).shape
  (1, 8, 3)
  """
  devices = len(placement.devices)
  return jax.tree.map(lambda x: _shape((devices, x.shape[1] // devices, *x.shape[2:]), x, placement), tree)


def copied(tree: Any, placement: Placement) -> Any:
  """Shapes [D, ...] of leaves [1, ...]: a copy on each device.

  >>> from vrl_jax.engine.placement import place_workers
  >>> copied(jax.ShapeDtypeStruct((1, 8, 3), 'float32'), place_workers(workers=4, devices=1)).shape
  (1, 8, 3)
  """
  return jax.tree.map(lambda x: _shape((len(placement.devices), *x.shape[1:]), x, placement), tree)


def _shape(shape, like, placement):
  return jax.ShapeDtypeStruct(shape, like.dtype, sharding=placement.sharding)
