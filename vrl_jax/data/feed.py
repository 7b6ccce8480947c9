"""How examples reach the workers: data that fits lives on the devices and only indices travel, the rest is host-fed."""

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from vrl_jax import hosts
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

  >>> import jax.numpy as jnp
  >>> indices, weight = jnp.array([[[0, 1], [2, 0]]]), jnp.array([[[1.0, 1.0], [1.0, 0.0]]])
  >>> part = EvalPart({'x': jnp.array([[5.0, 6.0, 7.0]])}, indices, weight)
  >>> float((part.data['x'][0][part.indices[0]] * part.weight[0]).sum())  # the last place is padding
  18.0
  """

  data: Any
  indices: jax.Array
  weight: jax.Array


class Feed:
  """A task's training data under one stream of indices, on one arrangement of workers.

  Of several processes each keeps the examples of its own workers and the few that were left out of training; it keeps
  all if every worker reaches all (the partition 'identical').

  >>> from vrl_jax.arrangement import arrange
  >>> from vrl_jax.data import partition, stream
  >>> labels = np.repeat([0, 1], 6)
  >>> indices = stream.index_stream(partition.by_class(labels, workers=2), batch_size=3)
  >>> feed = Feed({'label': labels}, indices, arrange(workers=2, devices=1), where='host')
  >>> batches = feed.items(step=0, length=2, rounds=1)  # one round of two steps
  >>> batches['label'].shape, batches['label'][0, 0].tolist(), batches['label'][0, 1].tolist()
  ((1, 2, 1, 2, 3), [[[0, 0, 0], [0, 0, 0]]], [[[1, 1, 1], [1, 1, 1]]])
  """

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
    self._shared = shared = partition.shards is None
    self._stream = stream
    self._arrangement = arrangement
    self.on_device = where == 'device' or (where == 'auto' and _fits(data, arrangement, shared))
    self._data, self._left_out = data, None
    resident = None
    if not shared:
      own = arrangement.own_workers
      left_out = np.setdiff1d(np.arange(partition.num_examples), partition.shards)
      self._data = _take(data, partition.shards[own.start : own.stop])  # [own workers, shard size, ...]
      self._left_out = _take(data, left_out)
    if self.on_device:
      resident = arrangement.replicate(data) if shared else arrangement.place(self._by_device())
      self._data = None
    self.supply = Supply(
      data=resident,
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
    flat = self._stream.indices(step, rounds * length, self._arrangement.own_workers)  # [steps, own workers, batch]
    flat = np.concatenate([flat, np.zeros(((capacity - rounds) * length, *flat.shape[1:]), flat.dtype)])
    by_worker = np.moveaxis(flat.reshape(capacity, length, *flat.shape[1:]), 2, 0)
    worker = np.arange(len(by_worker)).reshape(-1, *[1] * (by_worker.ndim - 1))
    if not self.on_device:
      by_worker = _take(self._data, by_worker if self._shared else (worker, by_worker))
    elif not self._shared:  # the workers' examples lie one after another on their device
      place = worker % self._arrangement.workers_per_device
      by_worker = by_worker + (place * self._stream.partition.shard_size).astype(by_worker.dtype)
    return self._arrangement.split_own(by_worker)

  def training_parts(self, chunk: int) -> Iterable[EvalPart]:
    """All training examples, each once, for evaluation; examples on the devices are not sent again."""
    partition, devices = self._stream.partition, len(self._arrangement.devices)
    if self._shared:
      if not self.on_device:
        return _Again(lambda: eval_parts(self._data, self._arrangement, chunk))
      total = partition.num_examples
      per_device = -(-total // devices)
      places = np.arange(devices * per_device).reshape(devices, per_device)
      return [_part(self.supply.data, places, places < total, chunk, self._arrangement)]
    rest = list(eval_parts(self._left_out, self._arrangement, chunk))
    if not self.on_device:
      return _Again(lambda: itertools.chain(self._held_parts(chunk), rest))
    per_device = self._arrangement.workers_per_device * partition.shard_size
    places = np.tile(np.arange(per_device), (devices, 1))
    return [_part(self.supply.data, places, np.ones_like(places), chunk, self._arrangement), *rest]

  def _by_device(self):
    """The own workers' examples, [own devices, examples, ...]."""
    own = len(self._arrangement.own_devices)
    return jax.tree.map(lambda x: x.reshape(own, -1, *x.shape[2:]), self._data)

  def _held_parts(self, chunk):
    """The workers' examples from the host, each on its worker's device, a bounded number at a time."""
    total, data = len(self._arrangement.devices), self._by_device()
    size, limit = jax.tree.leaves(data)[0].shape[1], max(chunk, _HOST_CHUNK)
    for start in range(0, size, limit):
      rows = jax.tree.map(lambda x, start=start: x[:, start : start + limit], data)
      places = np.tile(np.arange(min(limit, size - start)), (total, 1))
      yield _part(self._arrangement.place(rows), places, np.ones_like(places), chunk, self._arrangement)


class _Again:
  """A generator that can be iterated many times."""

  def __init__(self, generator):
    self._generator = generator

  def __iter__(self):
    return self._generator()


def eval_parts(data: Any, arrangement: Arrangement, chunk: int) -> Iterator[EvalPart]:
  """NumPy examples [n, ...] spread over the devices, padded and masked, a bounded number at a time.

  >>> from vrl_jax.arrangement import arrange
  >>> (part,) = eval_parts({'x': np.arange(5.0)}, arrange(workers=1), chunk=2)
  >>> part.indices.tolist(), part.weight.tolist()
  ([[[0, 1], [2, 3], [4, 0]]], [[[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]])
  """
  total = len(jax.tree.leaves(data)[0])
  devices = len(arrangement.devices)
  limit = devices * max(chunk, _HOST_CHUNK)
  for start in range(0, total, limit):
    size = min(limit, total - start)
    per_device = -(-size // devices)
    places = start + np.arange(devices * per_device).reshape(devices, per_device)
    real = places < start + size
    own = arrangement.own_devices
    rows = arrangement.place(_take(data, np.where(real, places, start)[own.start : own.stop]))
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
  own = arrangement.own_devices
  return EvalPart(data, *arrangement.place((indices[own.start : own.stop], weight[own.start : own.stop])))


def _take(data, indices):
  return jax.tree.map(lambda x: x[indices], data)


def _as_is(data, batch):
  del data
  return batch


def _fits(data, arrangement, shared):
  size = sum(x.nbytes for x in jax.tree.leaves(data))
  on_one = size if shared else size / len(arrangement.devices)
  own = arrangement.own_devices
  stats = arrangement.devices[own.start].memory_stats() or {}
  fits = on_one <= _FRACTION_OF_MEMORY * stats.get('bytes_limit', _host_memory() / len(own))
  return fits if arrangement.is_local else all(hosts.collect(fits))


def _host_memory():
  try:
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  except (ValueError, OSError, AttributeError):
    return 8 << 30
