"""Exact means over a split: divided over the devices, padded and masked."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vrl_jax.algorithms.core.axes import DEVICE_AXIS
from vrl_jax.engine.placement import Placement, first_copy

HOST_CHUNK = 1000
"""The number of examples that are sent to a device at once for evaluation."""


class EvalPart(NamedTuple):
  """Examples to evaluate.

  Attributes:
    data: [D, examples, ...] on the devices.
    indices: int32 [D, number of chunks, chunk], the examples that each device evaluates.
    weight: float32 like `indices`: 0 for padding, else 1, or the weight of the example.

  >>> indices, weight = jnp.array([[[0, 1], [2, 0]]]), jnp.array([[[1.0, 1.0], [1.0, 0.0]]])
  >>> part = EvalPart({'x': jnp.array([[5.0, 6.0, 7.0]])}, indices, weight)
  >>> float((part.data['x'][0][part.indices[0]] * part.weight[0]).sum())  # the last index is padding
  18.0
  """

  data: Any
  indices: jax.Array
  weight: jax.Array


def eval_parts(data: Any, placement: Placement, chunk: int) -> Iterator[EvalPart]:
  """NumPy examples [n, ...] sharded over the devices, padded and masked, a bounded number at a time.

  Args:
    data: a tree of NumPy arrays [n, ...].
    placement: the devices.
    chunk: the number of examples that a device evaluates at once.

  >>> from vrl_jax.engine.placement import place_workers
  >>> (part,) = eval_parts({'x': np.arange(5.0)}, place_workers(workers=1), chunk=2)
  >>> part.indices.tolist(), part.weight.tolist()
  ([[[0, 1], [2, 3], [4, 0]]], [[[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]])
  """
  total = len(jax.tree.leaves(data)[0])
  devices = placement.islands
  limit = devices * max(chunk, HOST_CHUNK)
  for start in range(0, total, limit):
    size = min(limit, total - start)
    per_device = -(-size // devices)
    indices = start + np.arange(devices * per_device).reshape(devices, per_device)
    real = indices < start + size
    local = placement.local_islands
    rows = np.where(real, indices, start)[local.start : local.stop]
    sharded = placement.shard(jax.tree.map(lambda x, rows=rows: x[rows], data))
    yield make_eval_part(sharded, np.tile(np.arange(per_device), (devices, 1)), real, chunk, placement)


def make_eval_part(data: Any, indices: np.ndarray, weight: np.ndarray, chunk: int, placement: Placement) -> EvalPart:
  """Divides the indices into chunks, and pads the last.

  Args:
    data: [D, examples, ...] on the devices.
    indices: [D, n], the examples that each device evaluates.
    weight: [D, n], bools or numbers: false or 0 for padding.
    chunk: the number of examples that a device evaluates at once.
    placement: the devices.

  >>> from vrl_jax.engine.placement import place_workers
  >>> on_one_device = place_workers(workers=1, devices=1)
  >>> part = make_eval_part(jnp.zeros((1, 3)), np.array([[0, 1, 2]]), np.ones((1, 3), bool), 2, on_one_device)
  >>> part.indices.tolist(), part.weight.tolist()
  ([[[0, 1], [2, 0]]], [[[1.0, 1.0], [1.0, 0.0]]])
  """
  devices, count = indices.shape
  chunk = min(chunk, count)
  chunk += -chunk % placement.devices_per_island  # each chunk is divided over an island
  missing = -count % chunk
  pad = ((0, 0), (0, missing))
  shape = (devices, (count + missing) // chunk, chunk)
  indices = np.pad(np.where(weight, indices, 0), pad).reshape(shape).astype(np.int32)
  weight = np.pad(weight, pad).reshape(shape).astype(np.float32)
  local = placement.local_islands
  return EvalPart(data, *placement.shard((indices[local.start : local.stop], weight[local.start : local.stop])))


def make_evaluator(
  metrics: Callable[[Any, Any, Any], dict[str, jax.Array]], placement: Placement, *, weighted: bool = False
) -> Callable[[Any, Any, Iterable[EvalPart]], dict[str, float]]:
  """Makes `evaluate(params, frozen, parts) -> means`.

  Args:
    metrics: `(params, frozen, batch) -> {name: [batch]}`, a value for each example.
    placement: the devices.
    weighted: whether there are weights other than 0 and 1.

  Returns:
    A function of a model and the frozen constants, both with a copy per device or island (leaves [D, ...]), and the
    examples.

  >>> from vrl_jax.engine.placement import place_workers
  >>> placement = place_workers(workers=1)
  >>> evaluate = make_evaluator(lambda x, frozen, batch: {'loss': (x - batch['c']) ** 2}, placement)
  >>> parts = eval_parts({'c': np.array([0.0, 2.0, 4.0], np.float32)}, placement, chunk=2)  # the last chunk is padded
  >>> evaluate(placement.replicate(np.float32(1.0)), (), parts)
  {'loss': 3.6666666666666665}
  """

  def sums(params, frozen, data, indices, weight):
    def chunk_sums(indices, weight):
      batch = placement.constrain_batch(jax.tree.map(lambda x: x[indices], data))
      values = metrics(params, frozen, batch)
      # A padded row repeats a real one; `where` excludes it even if its metric is NaN.
      scale = lambda v: v * weight.astype(v.dtype) if weighted else v
      return jax.tree.map(lambda v: jnp.sum(jnp.where(weight > 0, scale(v.astype(jnp.result_type(float))), 0)), values)

    _, by_chunk = lax.scan(lambda _, chunk: (None, chunk_sums(*chunk)), None, (indices, weight))
    return lax.psum((jax.tree.map(jnp.sum, by_chunk), jnp.sum(weight)), DEVICE_AXIS)

  program = placement.pmap(sums)

  def evaluate(params: Any, frozen: Any, parts: Iterable[EvalPart]) -> dict[str, float]:
    totals: dict[str, float] = {}
    count = 0.0
    for part in parts:
      part_sums, weight = first_copy(program(params, frozen, part.data, part.indices, part.weight))
      totals = {name: totals.get(name, 0.0) + float(value) for name, value in part_sums.items()}
      count += float(weight)
    return {name: total / count for name, total in totals.items()}

  return evaluate
