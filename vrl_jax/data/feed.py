"""How examples reach the workers: data that fits lives on the devices and only indices travel, the rest is host-fed."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from vrl_jax.arrangement import Arrangement
from vrl_jax.data.stream import IndexStream
from vrl_jax.errors import UserError
from vrl_jax.rounds import Supply

FEEDS = ('auto', 'device', 'host')
_HOST_CHUNK = 1000  # examples a device evaluates at a time when the data stays on the host
_FRACTION_OF_MEMORY = 0.5


class EvalPart(NamedTuple):
  """Examples to evaluate.

  Attributes:
    data: [D, examples, ...] on the devices.
    indices: int32 [D, chunk count, chunk], which of them each device evaluates.
    weight: float32 like `indices`: 1, or 0 for padding.
    by_worker: whether `data` is [D, N/D, examples, ...]; indices then count through the workers.
  """

  data: Any
  indices: jax.Array
  weight: jax.Array
  by_worker: bool = False


class Feed:
  """A task's training data under one stream of indices, on one arrangement of workers."""

  def __init__(
    self, data: Any, stream: IndexStream, arrangement: Arrangement, *, frozen: Any = (), where: str = 'auto'
  ):
    """Places the data.

    Args:
      data: a tree of NumPy arrays [examples, ...].
      stream: which examples each worker takes at each step.
      arrangement: the workers and their devices.
      frozen: constants of the model, given to every device.
      where: 'device' keeps all examples on the devices, 'host' gathers each batch on the host while the devices
        compute, 'auto' takes 'device' if the examples fill at most half of a device's memory.
    """
    if where not in FEEDS:
      raise UserError(f'feed={where!r}, must be one of {", ".join(FEEDS)}')
    partition = stream.partition
    shared = partition.shards is None
    self._data = data
    self._stream = stream
    self._arrangement = arrangement
    self.on_device = where == 'device' or (where == 'auto' and _fits(data, arrangement, shared))
    resident = None
    if self.on_device:
      if shared:
        resident = arrangement.replicate(data)
      else:
        resident = arrangement.split(jax.tree.map(lambda x: x[partition.shards], data))
    self.supply = Supply(
      data=resident,
      shared=shared,
      fetch=_take if self.on_device else _as_is,
      frozen=arrangement.replicate(frozen),
    )

  def items(self, step: int, length: int, rounds: int, capacity: int | None = None) -> Any:
    """What the engine's steps need for `rounds` rounds of `length` steps from `step` on.

    Args:
      step: the first step.
      length: k.
      rounds: how many rounds.
      capacity: pads to this many rounds, so that one compiled program serves all numbers up to it.

    Returns:
      Leaves [D, N/D, capacity, k, ...] on the devices.
    """
    capacity = capacity or rounds
    indices = self._stream.indices if self.on_device else self._stream.global_indices
    flat = indices(step, rounds * length)  # [steps, N, batch]
    flat = np.concatenate([flat, np.zeros(((capacity - rounds) * length, *flat.shape[1:]), flat.dtype)])
    by_worker = np.moveaxis(flat.reshape(capacity, length, *flat.shape[1:]), 2, 0)
    if not self.on_device:
      by_worker = jax.tree.map(lambda x: x[by_worker], self._data)
    return self._arrangement.split(by_worker)

  def training_parts(self, chunk: int) -> Iterable[EvalPart]:
    """All training examples, each once, for evaluation; examples on the devices are not sent again."""
    partition = self._stream.partition
    if not self.on_device:
      return _Again(lambda: eval_parts(self._data, self._arrangement, chunk))
    devices = len(self._arrangement.devices)
    if self.supply.shared:
      total = partition.num_examples
      per_device = -(-total // devices)
      places = np.arange(devices * per_device).reshape(devices, per_device)
      return [_part(self.supply.data, places, places < total, chunk, self._arrangement)]
    per_device = self._arrangement.workers_per_device * partition.shard_size
    places = np.tile(np.arange(per_device), (devices, 1))
    held = _part(self.supply.data, places, np.ones_like(places), chunk, self._arrangement)._replace(by_worker=True)
    left_out = np.setdiff1d(np.arange(partition.num_examples), partition.shards)
    rest = eval_parts(jax.tree.map(lambda x: x[left_out], self._data), self._arrangement, chunk)
    return [held, *rest]


class _Again:
  """A generator that can be iterated many times."""

  def __init__(self, generator):
    self._generator = generator

  def __iter__(self):
    return self._generator()


def eval_parts(data: Any, arrangement: Arrangement, chunk: int) -> Iterator[EvalPart]:
  """NumPy examples [n, ...] spread over the devices, padded and masked, a bounded number at a time."""
  total = len(jax.tree.leaves(data)[0])
  devices = len(arrangement.devices)
  limit = devices * max(chunk, _HOST_CHUNK)
  for start in range(0, total, limit):
    size = min(limit, total - start)
    per_device = -(-size // devices)
    places = start + np.arange(devices * per_device).reshape(devices, per_device)
    real = places < start + size
    rows = jax.device_put(_take(data, np.where(real, places, start)), arrangement.sharding)
    yield _part(rows, np.tile(np.arange(per_device), (devices, 1)), real, chunk, arrangement)


def _part(data, places, real, chunk, arrangement):
  """Cuts [D, n] places into [D, chunks, chunk]."""
  devices, count = places.shape
  chunk = min(chunk, count)
  missing = -count % chunk
  pad = ((0, 0), (0, missing))
  shape = (devices, (count + missing) // chunk, chunk)
  indices = np.pad(np.where(real, places, 0), pad).reshape(shape).astype(np.int32)
  weight = np.pad(real, pad).reshape(shape).astype(np.float32)
  return EvalPart(data, *jax.device_put((indices, weight), arrangement.sharding))


def _take(data, indices):
  return jax.tree.map(lambda x: x[indices], data)


def _as_is(data, batch):
  del data
  return batch


def _fits(data, arrangement, shared):
  size = sum(x.nbytes for x in jax.tree.leaves(data))
  on_one = size if shared else size / len(arrangement.devices)
  stats = arrangement.devices[0].memory_stats() or {}
  return on_one <= _FRACTION_OF_MEMORY * stats.get('bytes_limit', _host_memory() / len(arrangement.devices))


def _host_memory():
  try:
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  except (ValueError, OSError, AttributeError):
    return 8 << 30
