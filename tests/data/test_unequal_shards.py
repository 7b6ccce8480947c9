"""Shards that differ in size: every example has a worker, and every worker takes the same number of steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrl_jax.data.class_table import class_table
from vrl_jax.data.partition import PARTITIONS, UNEQUAL, Partition
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError

LABELS = np.random.default_rng(0).choice(6, size=500, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
unequal = pytest.mark.parametrize('name', UNEQUAL)


@unequal
@settings(max_examples=30, deadline=None)
@given(workers=st.integers(1, 6), seed=st.integers(0, 2**40))
def test_every_example_has_one_worker(name, workers, seed):
  partition = PARTITIONS[name](LABELS, workers, seed=seed)
  assert partition.is_unequal and partition.dropped == 0
  assert sorted(np.concatenate(partition.shards).tolist()) == list(range(500))
  assert partition.sizes.sum() == partition.num_examples == 500 and partition.shard_size == 500 // workers
  assert partition.sizes @ partition.example_weights == pytest.approx(500)
  assert np.ptp(partition.sizes * partition.example_weights) < 1e-9  # every worker counts the same


def test_by_label_gives_whole_classes():
  table = class_table(PARTITIONS['by_label'](LABELS, 4), LABELS, 6)
  assert np.count_nonzero(table, axis=0).tolist() == [1] * 6
  assert np.nonzero(table[1])[0].tolist() == [1, 5]
  of_workers = np.array([20, 10, 30, 10])  # numbers of workers
  assert [shard.tolist() for shard in PARTITIONS['by_label'](of_workers, 3).shards] == [[1, 3], [0], [2]]


def test_dirichlet_unequal_follows_seed_and_alpha():
  make = lambda alpha, seed=0: PARTITIONS['dirichlet_unequal'](LABELS, 5, alpha=alpha, seed=seed)
  same, other = make(0.5), make(0.5, seed=1)
  assert all(map(np.array_equal, make(0.5).shards, same.shards))
  assert not all(map(np.array_equal, same.shards, other.shards))
  spread = [make(alpha).sizes.std() for alpha in (0.3, 3.0, 1e4, 1e308)]
  assert spread[0] > spread[1] > 10 > 5 > max(spread[2:])  # the last are the remainders of the classes
  assert PARTITIONS['dirichlet_unequal'](LABELS, 5, alpha=0.3, least=40).sizes.min() >= 40


@pytest.mark.parametrize(
  ('name', 'options', 'message'),
  [
    ('by_label', {'workers': 7}, 'partition by_label: workers=7, must be at most the number of classes, 6'),
    ('dirichlet_unequal', {'alpha': 0.0}, 'partition dirichlet_unequal: alpha=0.0, must be a finite number > 0'),
    (
      'dirichlet_unequal',
      {'alpha': 1e-6, 'workers': 7},
      'a worker had fewer than 1 of 500 examples: choose a larger alpha, fewer ',
    ),
    ('dirichlet_unequal', {'least': 200}, 'a worker had fewer than 200 of 500 examples: choose a larger alpha, fewer '),
  ],
)
def test_mistakes(name, options, message):
  with pytest.raises(UserError) as error:
    PARTITIONS[name](LABELS, **{'workers': 5} | options)
  assert message in str(error.value) and '\n' not in str(error.value)


@unequal
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**40), st.data())
def test_the_stream_is_a_function_of_the_step(name, batch_size, seed, data):
  stream, other = (index_stream(PARTITIONS[name](LABELS, 4), batch_size, seed) for _ in range(2))
  total = 3 * stream.steps_per_epoch
  full = stream.indices(0, total)
  assert full.shape == (total, 4, batch_size) and full.dtype == np.int32
  step = data.draw(st.integers(0, total))
  count = data.draw(st.integers(0, total - step))
  some = data.draw(st.lists(st.integers(0, 3), unique=True))
  np.testing.assert_array_equal(other.indices(step, count, some), full[step : step + count, some])
  np.testing.assert_array_equal(other.global_indices(step, count, some), stream.global_indices(step, count)[:, some])


@unequal
def test_each_worker_goes_through_its_own_shard_in_epochs_of_its_own(name):
  stream = index_stream(PARTITIONS[name](LABELS, 4, seed=3), batch_size=5, seed=7)
  assert stream.steps_per_epoch == 125 // 5
  in_data = stream.global_indices(0, 200)
  for worker, shard in enumerate(stream.partition.shards):
    taken = in_data[:, worker]
    per_epoch = len(shard) // 5
    assert set(taken.ravel().tolist()) <= set(shard.tolist())
    for start in range(0, 200 - per_epoch, per_epoch):
      assert len(np.unique(taken[start : start + per_epoch])) == 5 * per_epoch  # no example twice
    assert not np.array_equal(taken[:per_epoch], taken[per_epoch : 2 * per_epoch])


def test_shards_that_happen_to_be_equal_have_the_batches_of_equal_shards():
  equal = PARTITIONS['by_class'](np.repeat(np.arange(4), 20), 4)
  as_tuple = Partition(tuple(equal.shards), 4, 20, 0, 80)
  streams = [index_stream(one, batch_size=3, seed=5) for one in (equal, as_tuple)]
  np.testing.assert_array_equal(*(stream.indices(4, 50) for stream in streams))
  np.testing.assert_array_equal(*(stream.global_indices(4, 50) for stream in streams))


def test_a_batch_that_is_larger_than_a_shard():
  with pytest.raises(UserError, match='^batch_size=50, must be at most 44, the number of examples of worker 3$'):
    index_stream(PARTITIONS['by_label'](np.repeat(np.arange(4), [150, 160, 146, 44]), 4), batch_size=50)
