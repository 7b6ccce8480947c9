"""The index stream: the examples of each worker's batch at each step.

It is a pure function of (seed, step), so a run can be resumed from the step alone. In every epoch each worker goes
through a new permutation of its examples in full batches. An incomplete last batch is dropped (its examples differ from
epoch to epoch), so every worker takes the same number of steps. If shards differ in size, so does the
length of the workers' epochs.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from vrl_jax.data.partition import Partition
from vrl_jax.errors import UserError

_SEED_BRANCH = 2  # spawn key of the random numbers drawn here; partition.py has another


@dataclasses.dataclass(frozen=True, eq=False)
class IndexStream:
  """The indices of every worker's batches; `index_stream` makes one.

  Attributes:
    partition: the division of the examples among the workers.
    batch_size: the number of examples in one worker's batch.
    seed: the seed of the permutations.

  >>> from vrl_jax.data.partition import identical
  >>> stream = IndexStream(identical(np.zeros(12, int), workers=2), batch_size=3, seed=0)
  >>> bool((stream.indices(step=5, count=1) == stream.indices(step=0, count=6)[5:]).all())
  True
  >>> stream.indices(step=0, count=2, workers=[1]).shape
  (2, 1, 3)
  """

  partition: Partition
  batch_size: int
  seed: int
  _cache: dict = dataclasses.field(default_factory=dict, init=False, repr=False)

  @property
  def steps_per_epoch(self) -> int:
    """The number of full batches in an epoch of one worker; if shards differ in size, in a shard of the mean size."""
    return self.partition.shard_size // self.batch_size

  def indices(self, step: int, count: int, workers: Sequence[int] | None = None) -> np.ndarray:
    """The indices of the steps `step` ... `step + count - 1`, which may span epochs.

    Args:
      step: the first step, counted from 0 at the start of the run.
      count: the number of steps.
      workers: the workers to return; None for all. With fixed shards only these are computed, so that a host pays only
        for its workers.

    Returns:
      int32 [count, workers, batch_size]: indices into the worker's shard if the partition has fixed shards, else indices
      into the data.
    """
    if step < 0 or count < 0:
      raise ValueError(f'step={step}, count={count}, must be >= 0')
    workers = tuple(range(self.partition.workers) if workers is None else workers)
    if not set(workers) <= set(range(self.partition.workers)):
      raise ValueError(f'workers={workers}, must be among 0 ... {self.partition.workers - 1}')
    out = np.empty((count, len(workers), self.batch_size), np.int32)
    if self.partition.is_unequal:
      for position, worker in enumerate(workers):
        self._fill_from_own_epochs(out[:, position], worker, step)
      return out
    done = 0
    while done < count:
      epoch, start = divmod(step + done, self.steps_per_epoch)
      taken = min(count - done, self.steps_per_epoch - start)
      rows = self._epoch(epoch, workers)[:, start * self.batch_size : (start + taken) * self.batch_size]
      rows = rows[list(workers)] if self.partition.shards is None else rows
      out[done : done + taken] = rows.reshape(len(workers), taken, self.batch_size).swapaxes(0, 1)
      done += taken
    return out

  def global_indices(self, step: int, count: int, workers: Sequence[int] | None = None) -> np.ndarray:
    """Like `indices`, but always indices into the data; for batches that are gathered on the host."""
    indices = self.indices(step, count, workers)
    if self.partition.shards is None:
      return indices
    if isinstance(self.partition.shards, tuple):
      chosen = range(self.partition.workers) if workers is None else workers
      for position, worker in enumerate(chosen):
        indices[:, position] = self.partition.shards[worker][indices[:, position]]
      return indices
    shards = self.partition.shards if workers is None else self.partition.shards[list(workers)]
    return shards[np.arange(len(shards))[:, None], indices].astype(np.int32)

  def _fill_from_own_epochs(self, out: np.ndarray, worker: int, step: int) -> None:
    """Fills [count, batch_size] with the batches of one worker, whose epochs have its own number of batches."""
    size = int(self.partition.sizes[worker])
    per_epoch = size // self.batch_size
    done = 0
    while done < len(out):
      epoch, start = divmod(step + done, per_epoch)
      taken = min(len(out) - done, per_epoch - start)
      cached, row = self._cache.get(worker, (None, None))
      if row is None or cached != epoch:
        row = self._shuffled(size, epoch, worker)
        self._cache[worker] = (epoch, row)
      out[done : done + taken] = row[start * self.batch_size :][: taken * self.batch_size].reshape(taken, -1)
      done += taken

  def _epoch(self, epoch: int, workers: tuple[int, ...]) -> np.ndarray:
    """The permuted examples of an epoch: a row for each of `workers`, or of all workers if there are no fixed shards.

    Only the last result is cached.
    """
    dealt = self.partition.shards is None
    key = (epoch, None if dealt else workers)
    # One tuple under one key: a thread that reads while another writes sees the old pair or the new, never a mixture.
    cached, rows = self._cache.get('last', (None, None))
    if rows is None or cached != key:
      if dealt:
        size = self.partition.workers * self.partition.shard_size
        rows = self._shuffled(self.partition.num_examples, epoch, 0)[:size].reshape(self.partition.workers, -1)
      else:
        size = self.partition.shard_size
        rows = np.array([self._shuffled(size, epoch, i) for i in workers], np.int32).reshape(len(workers), size)
      self._cache['last'] = (key, rows)
    return rows

  def _shuffled(self, size: int, epoch: int, worker: int) -> np.ndarray:
    sequence = np.random.SeedSequence(self.seed, spawn_key=(_SEED_BRANCH, epoch, worker))
    return np.random.Generator(np.random.Philox(sequence)).permutation(np.arange(size, dtype=np.int32))


def index_stream(partition: Partition, batch_size: int, seed: int = 0) -> IndexStream:
  """Makes the index stream of a partition.

  Args:
    partition: the division of the examples among the workers.
    batch_size: the number of examples in one worker's batch.
    seed: the seed of the permutations.

  Returns:
    The index stream.

  Raises:
    UserError: the shards are smaller than one batch.

  Example:

    >>> import numpy as np
    >>> from vrl_jax.data import partition
    >>> stream = index_stream(partition.by_class(np.repeat([0, 1], 6), workers=2), batch_size=3)
    >>> stream.steps_per_epoch
    2
    >>> stream.indices(step=0, count=5).shape
    (5, 2, 3)
    >>> np.sort(stream.global_indices(step=0, count=2), axis=None)
    array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11], dtype=int32)
  """
  if batch_size < 1 or seed < 0:
    raise UserError(f'batch_size={batch_size}, must be >= 1' if batch_size < 1 else f'seed={seed}, must be >= 0')
  if partition.is_unequal and batch_size > (smallest := partition.sizes.min()):
    raise UserError(
      f'batch_size={batch_size}, must be at most {smallest}, the number of examples of worker {partition.sizes.argmin()}'
    )
  if batch_size > partition.shard_size:
    raise UserError(
      f'batch_size={batch_size}, must be at most {partition.shard_size}, the number of examples per worker '
      f'({partition.num_examples} examples, {partition.workers} workers)'
    )
  return IndexStream(partition, batch_size, seed)
