"""A function mapped over the devices of a placement."""

from typing import Any, NamedTuple

import jax


class Program(NamedTuple):
  """A function mapped over the devices of a placement; arguments and results are global arrays.

  Attributes:
    placement: where it runs.
    mapped: the result of `jax.pmap`, or of `jax.jit` for islands.

  >>> import numpy as np
  >>> from vrl_jax.engine.placement import place_workers
  >>> program = place_workers(workers=1).pmap(lambda x: 2 * x)
  >>> program(np.ones((1, 3), np.float32)).tolist()
  [[2.0, 2.0, 2.0]]
  >>> 'multiply' in program.lower(np.ones((1, 3), np.float32)).as_text()
  True
  """

  placement: Any  # a `Placement`, which makes programs
  mapped: Any  # `jax.pmap` has no public type

  def __call__(self, *args: Any) -> Any:
    """Runs the function on all devices."""
    out = self.placement.dispatch(self.mapped, *args)
    if self.placement.is_local or self.placement.devices_per_island > 1:
      return out
    # `jax.pmap` accepts global arguments, but returns each process only the shards of its own devices.
    return jax.tree.map(self.placement.to_global, out)

  def lower(self, *args: Any) -> jax.stages.Lowered:
    """Lowers the function for arguments of these shapes."""
    return self.mapped.lower(*args)
