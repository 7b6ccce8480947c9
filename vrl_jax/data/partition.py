"""Partitions: how the examples are divided among the workers.

Every worker takes the same number of steps in every round, with batches of the same size: unequal numbers of steps break
VRL-SGD. Most partitions make shards of the same size; the n mod N examples that are left over are dropped and counted in
`Partition.dropped`. The partitions in `UNEQUAL` drop nothing, and their shards differ in size: a worker with a small shard
goes through it more often. All algorithms then minimise the mean over the workers of the mean loss of each shard, so an
example of a small shard has a larger weight: `Partition.example_weights`.
`PARTITIONS[name](labels, workers, seed=..., **options)` makes a partition; the labels are integers [n].
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vrl_jax.errors import UserError

_DRAWS = 1000
_SEED_BRANCH = 1  # spawn key of the random numbers drawn here; stream.py has another


class Partition(NamedTuple):
  """The division of `num_examples` examples among `workers`.

  Attributes:
    shards: int64 [workers, shard_size], the indices of each worker's examples, without repetition; a tuple of arrays if
      they differ in size; None if all examples are dealt to the workers again in every epoch.
    workers: N, the number of workers.
    shard_size: the number of examples per worker; if the shards differ in size, their mean, rounded down.
    dropped: the number of examples left out so that the shards are equal (different ones in each epoch if `shards` is
      None).
    num_examples: the number of examples in the data: those of all shards + dropped.

  >>> partition = Partition(np.array([[0, 1], [2, 3]]), workers=2, shard_size=2, dropped=1, num_examples=5)
  >>> partition.shards[1]  # the examples of worker 1
  array([2, 3])
  """

  shards: np.ndarray | tuple[np.ndarray, ...] | None
  workers: int
  shard_size: int
  dropped: int
  num_examples: int

  @property
  def is_unequal(self) -> bool:
    """Whether the shards may differ in size."""
    return isinstance(self.shards, tuple)

  @property
  def sizes(self) -> np.ndarray:
    """The number of examples of each worker, int64 [workers]."""
    if self.shards is None:
      return np.full(self.workers, self.shard_size)
    return np.array([len(shard) for shard in self.shards])

  @property
  def example_weights(self) -> np.ndarray:
    """The weight of each worker's examples in the mean over the workers, [workers]: 1 if the shards are equal.

    >>> by_label(np.array([0, 0, 0, 1]), workers=2).example_weights  # 3 examples of worker 0 count as much as 1 of worker 1
    array([0.66666667, 2.        ])
    """
    return self.sizes.mean() / self.sizes


def identical(labels: np.ndarray, workers: int, *, seed: int = 0) -> Partition:
  """Every worker samples from all data: the index stream shuffles it in every epoch and deals it to the workers.

  >>> identical(np.arange(10) % 2, workers=3)
  Partition(shards=None, workers=3, shard_size=3, dropped=1, num_examples=10)
  """
  labels, size = _checked(labels, workers, seed)
  return Partition(None, workers, size, len(labels) - workers * size, len(labels))


def by_class(labels: np.ndarray, workers: int, *, seed: int = 0) -> Partition:
  """Sorts by label (stably) and cuts into equal blocks: the paper's non-identical case.

  It is deterministic; the last examples of the highest class are dropped.

  Example:

    >>> import numpy as np
    >>> by_class(np.array([1, 0, 1, 0, 2, 2, 2]), workers=3).shards
    array([[1, 3],
           [0, 2],
           [4, 5]])
  """
  labels, size = _checked(labels, workers, seed)
  order = np.argsort(labels, kind='stable')
  return _fixed(order[: workers * size].reshape(workers, size), len(labels))


def dirichlet(labels: np.ndarray, workers: int, *, alpha: float = 0.5, seed: int = 0) -> Partition:
  """Draws the class proportions of each worker from a Dirichlet distribution.

  After Hsu et al. (2019, arXiv:1909.06335): one worker after another draws its proportions and takes its examples in
  these proportions, by rounding (Hsu et al. sample them). When a class is exhausted, the other proportions are
  renormalised, so the last workers get the remaining examples. The concentration of class c is alpha * C * (its share
  of the data), which is alpha if the classes are equally large.

  Args:
    labels: integers [n].
    workers: the number of workers.
    alpha: the concentration, > 0. Near 0 a worker has few classes; a large value gives all workers the same mixture.
    seed: the seed of the draws.

  Example:

    >>> import numpy as np
    >>> from vrl_jax.data.class_table import class_table
    >>> labels = np.arange(1000) % 10
    >>> class_table(dirichlet(labels, workers=4, alpha=1e-4), labels, num_classes=10).max(axis=1)
    array([100, 100, 100, 100])
  """
  labels, size = _checked(labels, workers, seed)
  _check_alpha('dirichlet', alpha)
  rng = _generator(seed)
  _, inverse, left = np.unique(labels, return_inverse=True, return_counts=True)
  concentration = np.clip(alpha, 1e-30, 1e30) * len(left) * left / len(labels)
  pools = [rng.permutation(np.flatnonzero(inverse == c)) for c in range(len(left))]
  shards = []
  for _ in range(workers):
    counts = _counts(_log_gamma_draw(rng, concentration), left, size)
    shards.append(np.concatenate([pool[n - k : n] for pool, n, k in zip(pools, left, counts)]))
    left = left - counts
  return _fixed(np.stack(shards), len(labels))


def similarity(labels: np.ndarray, workers: int, *, percent: float = 10.0, seed: int = 0) -> Partition:
  """Draws `percent` % of each shard uniformly from all data and sorts the rest by label, as in the SCAFFOLD paper.

  Args:
    labels: integers [n].
    workers: the number of workers.
    percent: from 0 (the same as `by_class`) to 100 (a uniform shuffle, fixed for the run).
    seed: the seed of the shuffle.

  >>> from vrl_jax.data.class_table import class_table
  >>> labels = np.repeat([0, 1], 50)
  >>> for percent in (0, 50, 100):
  ...   print(class_table(similarity(labels, workers=2, percent=percent), labels, num_classes=2).tolist())
  [[50, 0], [0, 50]]
  [[37, 13], [13, 37]]
  [[22, 28], [28, 22]]
  """
  labels, size = _checked(labels, workers, seed)
  if not 0 <= percent <= 100:
    raise UserError(f'partition similarity: percent={percent}, must be from 0 to 100')
  shared = round(size * percent / 100)
  shuffled = _generator(seed).permutation(len(labels))
  rest = np.sort(shuffled[workers * shared :])  # in the order of the data, so that the stable sort is that of by_class
  rest = rest[np.argsort(labels[rest], kind='stable')]
  uniform = shuffled[: workers * shared].reshape(workers, shared)
  blocks = rest[: workers * (size - shared)].reshape(workers, size - shared)
  return _fixed(np.concatenate([uniform, blocks], axis=1), len(labels))


def by_label(labels: np.ndarray, workers: int, *, seed: int = 0) -> Partition:
  """Assigns classes to workers: worker i gets all examples of the classes i, i + N, …, so shards differ in size.

  It is deterministic and drops no example. With worker indices as labels, every worker gets the examples labelled with its
  index.

  >>> by_label(np.array([1, 0, 2, 0, 0]), workers=2).shards
  (array([1, 2, 3, 4]), array([0]))
  """
  labels, _ = _checked(labels, workers, seed)
  classes, number = np.unique(labels, return_inverse=True)
  if workers > len(classes):
    raise UserError(f'partition by_label: workers={workers}, must be at most the number of classes, {len(classes)}')
  return _unequal([np.flatnonzero(number % workers == i) for i in range(workers)])


def dirichlet_unequal(
  labels: np.ndarray, workers: int, *, alpha: float = 0.5, least: int = 1, seed: int = 0
) -> Partition:
  """Divides each class among the workers in proportions drawn from a Dirichlet distribution; drops no example.

  After Yurochkin et al. (2019, arXiv:1905.12022). The shards differ in size as well as in their classes. They are drawn
  again until each has `least` examples.

  Args:
    labels: integers [n].
    workers: the number of workers.
    alpha: the concentration, > 0. Near 0 few workers have examples of a class; a large value makes all shards alike.
    least: the smallest number of examples of a worker.
    seed: the seed of the draws.

  >>> labels = np.arange(1000) % 10
  >>> dirichlet_unequal(labels, workers=4, alpha=0.5).sizes
  array([293, 191, 177, 339])
  """
  labels, _ = _checked(labels, workers, seed)
  _check_alpha('dirichlet_unequal', alpha)
  rng = _generator(seed)
  _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
  pools = [rng.permutation(np.flatnonzero(inverse == c)) for c in range(len(sizes))]
  concentration = np.full(workers, np.clip(alpha, 1e-30, 1e30))
  for _ in range(_DRAWS):
    counts = [_counts(_log_gamma_draw(rng, concentration), np.full(workers, size), size) for size in sizes]
    if np.sum(counts, axis=0).min() >= max(1, least):
      parts = [np.split(pool, np.cumsum(count)[:-1]) for pool, count in zip(pools, counts)]
      return _unequal([np.concatenate(shard) for shard in zip(*parts)])
  raise UserError(
    f'partition dirichlet_unequal: in {_DRAWS} draws with alpha={alpha:g}, a worker had fewer than {max(1, least)} of '
    f'{len(labels)} examples: choose a larger alpha, fewer workers or a smaller batch_size'
  )


PARTITIONS: dict[str, Callable[..., Partition]] = {
  'identical': identical,
  'by_class': by_class,
  'dirichlet': dirichlet,
  'similarity': similarity,
  'by_label': by_label,
  'dirichlet_unequal': dirichlet_unequal,
}
UNEQUAL = ('by_label', 'dirichlet_unequal')
"""The partitions whose shards differ in size."""


def _checked(labels: np.ndarray, workers: int, seed: int) -> tuple[np.ndarray, int]:
  labels = np.asarray(labels)
  if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
    raise UserError(f'labels are {labels.dtype} {list(labels.shape)}, must be integers [n]')
  if not 1 <= workers <= len(labels):
    raise UserError(f'workers={workers}, must be from 1 to the number of examples, {len(labels)}')
  if seed < 0:
    raise UserError(f'seed={seed}, must be >= 0')
  return labels, len(labels) // workers


def _check_alpha(partition: str, alpha: float) -> None:
  if not (math.isfinite(alpha) and alpha > 0):
    raise UserError(f'partition {partition}: alpha={alpha}, must be a finite number > 0')


def _unequal(shards: Sequence[np.ndarray]) -> Partition:
  total = sum(map(len, shards))
  return Partition(tuple(shards), len(shards), total // len(shards), 0, total)


def _fixed(shards: np.ndarray, num_examples: int) -> Partition:
  workers, shard_size = shards.shape
  return Partition(shards.astype(np.int64), workers, shard_size, num_examples - shards.size, num_examples)


def _generator(seed: int) -> np.random.Generator:
  return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SEED_BRANCH,)))


def _log_gamma_draw(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
  # The logarithms of unnormalised Dirichlet proportions: for small shapes the gamma draws themselves underflow to 0.
  return np.log(rng.standard_gamma(shape + 1)) + np.log1p(-rng.random(shape.shape)) / shape


def _counts(log_weights: np.ndarray, left: np.ndarray, size: int) -> np.ndarray:
  """Divides `size` examples among the classes in these proportions, with at most `left` per class.

  Each pass either allots the missing examples or exhausts at least one class.
  """
  counts = np.zeros_like(left)
  while (missing := size - counts.sum()) > 0:
    logits = np.where(counts < left, log_weights, -np.inf)
    weights = np.exp(logits - logits.max())
    exact = missing * weights / weights.sum()
    taken = np.floor(exact).astype(left.dtype)
    taken[np.argsort(taken - exact, kind='stable')[: missing - taken.sum()]] += 1  # the largest remainders
    counts = np.minimum(counts + taken, left)
  return counts
