"""Feeding: data that fits stays on the devices and only indices are sent; otherwise the host sends mini-batches."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from vrl_jax.cluster import processes
from vrl_jax.data.stream import IndexStream
from vrl_jax.engine.evaluation import HOST_CHUNK, EvalPart, eval_parts, make_eval_part
from vrl_jax.engine.placement import Placement
from vrl_jax.errors import UserError

FEEDS = ('auto', 'device', 'host')
_FRACTION_OF_MEMORY = 0.5


class Supply(NamedTuple):
  """The source of the mini-batches.

  Attributes:
    data: the data that stay on the devices, [D, ...]; the workers of a device share them.
    fetch: `(data, item) -> batch`, called in every step with its item: indices into `data`, or the batch itself.
    frozen: constants of the model such as an embedding table, [D, ...].

  >>> import jax.numpy as jnp
  >>> supply = Supply(data=jnp.arange(10.0)[None], fetch=lambda data, indices: data[indices])
  >>> supply.fetch(supply.data[0], np.array([7, 3])).tolist()  # the batch of a worker, from its indices
  [7.0, 3.0]
  """

  data: Any
  fetch: Callable[[Any, Any], Any]
  frozen: Any = ()


class Feed:
  """Supplies the workers of a placement with a task's training data, in the order of a stream of indices.

  If shards differ in size, training examples are evaluated with the weights of their workers.

  With several processes, each keeps the examples of its own workers and the few that are left out of training, or all
  examples if every worker uses all (the partition 'identical').

  >>> from vrl_jax.engine.placement import place_workers
  >>> from vrl_jax.data import partition, stream
  >>> labels = np.repeat([0, 1], 6)
  >>> indices = stream.index_stream(partition.by_class(labels, workers=2), batch_size=3)
  >>> feed = Feed({'label': labels}, indices, place_workers(workers=2, devices=1), where='host')
  >>> batches = feed.items(step=0, length=2, rounds=1)  # one round of two steps
  >>> batches['label'].shape, batches['label'][0, 0].tolist(), batches['label'][0, 1].tolist()
  ((1, 2, 1, 2, 3), [[[0, 0, 0], [0, 0, 0]]], [[[1, 1, 1], [1, 1, 1]]])
  """

  def __init__(self, data: Any, stream: IndexStream, placement: Placement, *, frozen: Any = (), where: str = 'auto'):
    """Copies the data to the devices, unless the host keeps them.

    Args:
      data: a tree of NumPy arrays [examples, ...].
      stream: the examples of each worker at each step.
      placement: the workers and their devices.
      frozen: constants of the model, copied to every device.
      where: 'device' keeps all examples on the devices; 'host' gathers each batch on the host while the devices
        compute; 'auto' is 'device' if the examples fill at most half of a device's memory.
    """
    if where not in FEEDS:
      raise UserError(f'feed={where!r}, must be one of {", ".join(FEEDS)}')
    shards = stream.partition.shards
    self._stream = stream
    self._placement = placement
    self.is_shared = shards is None  # every worker uses all examples
    self.on_device = where == 'device' or (where == 'auto' and _fits(data, placement, self.is_shared))
    self._data, self._left_out = data, None
    if shards is not None:
      local = placement.local_workers
      by_device = stream.partition.sizes.reshape(placement.islands, -1)
      starts = by_device.cumsum(axis=1) - by_device  # of each worker's shard among the rows of its device
      self._starts = starts.reshape(-1)[local.start : local.stop].astype(np.int32)
      self._weights = _row_weights(stream.partition, by_device)
      here = placement.local_islands
      self._data = _take(data, _rows(shards, self._weights > 0)[here.start : here.stop])
      self._left_out = _take(data, np.setdiff1d(np.arange(stream.partition.num_examples), np.concatenate(shards)))
    on_devices = None
    if self.on_device:
      on_devices = placement.replicate(data) if self.is_shared else placement.shard(self._data)
      self._data = None
    self.supply = Supply(
      data=on_devices,
      fetch=_take if self.on_device else _item_is_batch,
      frozen=placement.replicate(frozen),
    )

  def items(self, step: int, length: int, rounds: int, capacity: int | None = None) -> Any:
    """The engine's items for `rounds` rounds of `length` steps from `step` on.

    Args:
      step: the first step.
      length: k.
      rounds: the number of rounds.
      capacity: pads to this many rounds, so that one compiled program serves all smaller numbers.

    Returns:
      Leaves [D, N/D, capacity, k, ...] on the devices.
    """
    capacity = capacity or rounds
    flat = self._stream.indices(step, rounds * length, self._placement.local_workers)  # [steps, local workers, batch]
    flat = np.concatenate([flat, np.zeros(((capacity - rounds) * length, *flat.shape[1:]), flat.dtype)])
    by_worker = np.moveaxis(flat.reshape(capacity, length, *flat.shape[1:]), 2, 0)
    worker = np.arange(len(by_worker)).reshape(-1, *[1] * (by_worker.ndim - 1))
    if not self.is_shared:  # a device has the shards of its workers in a row
      by_worker = by_worker + self._starts[worker]
    if not self.on_device:
      by_worker = _take(
        self._data, by_worker if self.is_shared else (worker // self._placement.workers_per_device, by_worker)
      )
    return self._placement.split_local(by_worker, self._placement.batch_sharding)

  def training_parts(self, chunk: int) -> Iterable[EvalPart]:
    """All training examples, each once, for evaluation; examples on the devices are not sent again."""
    partition, devices = self._stream.partition, self._placement.islands
    if self.is_shared:
      if not self.on_device:
        return _Iterable(lambda: eval_parts(self._data, self._placement, chunk))
      total = partition.num_examples
      per_device = -(-total // devices)
      indices = np.arange(devices * per_device).reshape(devices, per_device)
      return [make_eval_part(self.supply.data, indices, indices < total, chunk, self._placement)]
    left_out = list(eval_parts(self._left_out, self._placement, chunk))
    if not self.on_device:
      return _Iterable(lambda: itertools.chain(self._shard_parts(chunk), left_out))
    indices = np.tile(np.arange(self._weights.shape[1]), (devices, 1))
    return [make_eval_part(self.supply.data, indices, self._weights, chunk, self._placement), *left_out]

  def _shard_parts(self, chunk):
    """The workers' examples, sent from the host to the workers' devices, a bounded number at a time."""
    limit = max(chunk, HOST_CHUNK)
    for start in range(0, self._weights.shape[1], limit):
      rows = jax.tree.map(lambda x, start=start: x[:, start : start + limit], self._data)
      weights = self._weights[:, start : start + limit]
      indices = np.tile(np.arange(weights.shape[1]), (len(weights), 1))
      yield make_eval_part(self._placement.shard(rows), indices, weights, chunk, self._placement)


class _Iterable:
  """An iterable that calls a generator function for every iteration."""

  def __init__(self, generator: Callable[[], Iterator[EvalPart]]):
    self._generator = generator

  def __iter__(self) -> Iterator[EvalPart]:
    return self._generator()


def _row_weights(partition, by_device):
  """The weight of every row of every device, [D, rows]; 0 for rows that only fill a device up to the longest."""
  weights = partition.example_weights.reshape(by_device.shape)
  out = np.zeros((len(by_device), by_device.sum(axis=1).max()))
  for row, each, sizes in zip(out, weights, by_device):
    row[: sizes.sum()] = np.repeat(each, sizes)
  return out


def _rows(shards, is_real):
  """The examples in the rows of every device, [D, rows]: the shards of its workers one after the other."""
  out = np.zeros(is_real.shape, np.int64)
  out[is_real] = np.concatenate(shards)
  return out


def _take(data, indices):
  return jax.tree.map(lambda x: x[indices], data)


def _item_is_batch(data, batch):
  del data
  return batch


def _fits(data, placement, shared):
  size = sum(x.nbytes for x in jax.tree.leaves(data))
  per_device = size if shared else size / placement.islands
  local = placement.local_devices
  stats = local[0].memory_stats() or {}
  fits = per_device <= _FRACTION_OF_MEMORY * stats.get('bytes_limit', _host_memory() / len(local))
  return fits if placement.is_local else all(processes.collect(fits))


def _host_memory():
  try:
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  except (ValueError, OSError, AttributeError):
    return 8 << 30
