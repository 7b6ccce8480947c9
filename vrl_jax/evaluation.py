"""Exact means over a whole split: sharded over the devices, padded and masked."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.arrangement import DEVICE_AXIS, Arrangement, first_copy
from vrl_jax.data.feed import EvalPart


def make_evaluator(
  metrics: Callable[[Any, Any, Any], dict[str, jax.Array]], arrangement: Arrangement
) -> Callable[[Any, Any, Iterable[EvalPart]], dict[str, float]]:
  """Makes `evaluate(params, frozen, parts) -> means`.

  Args:
    metrics: `(params, frozen, batch) -> {name: [batch]}`, a value for each example.
    arrangement: the devices.

  Returns:
    A function of a model as a copy per device (leaves [D, ...]), the frozen constants likewise, and the examples.

  >>> import numpy as np
  >>> from vrl_jax.arrangement import arrange
  >>> from vrl_jax.data.feed import eval_parts
  >>> everywhere = arrange(workers=1)
  >>> evaluate = make_evaluator(lambda x, frozen, batch: {'loss': (x - batch['c']) ** 2}, everywhere)
  >>> parts = eval_parts({'c': np.array([0.0, 2.0, 4.0], np.float32)}, everywhere, chunk=2)  # the last is padded
  >>> evaluate(everywhere.replicate(np.float32(1.0)), (), parts)
  {'loss': 3.6666666666666665}
  """

  def sums(params, frozen, data, indices, weight):
    def chunk_sums(indices, weight):
      values = metrics(params, frozen, jax.tree.map(lambda x: x[indices], data))
      # A padded row repeats a real one; where() keeps even a NaN there out of the sum.
      return jax.tree.map(lambda v: jnp.sum(jnp.where(weight > 0, v.astype(jnp.result_type(float)), 0)), values)

    _, by_chunk = lax.scan(lambda _, chunk: (None, chunk_sums(*chunk)), None, (indices, weight))
    return lax.psum((jax.tree.map(jnp.sum, by_chunk), jnp.sum(weight)), DEVICE_AXIS)

  program = arrangement.pmap(sums)

  def evaluate(params, frozen, parts):
    totals, count = {}, 0.0
    for part in parts:
      part_sums, weight = first_copy(program(params, frozen, part.data, part.indices, part.weight))
      totals = {name: totals.get(name, 0.0) + float(value) for name, value in part_sums.items()}
      count += float(weight)
    return {name: total / count for name, total in totals.items()}

  return evaluate
