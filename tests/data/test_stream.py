"""The index stream: a pure function of (seed, step)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrl_jax.data.partition import PARTITIONS
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError

NAMES = ['identical', 'by_class', 'dirichlet', 'similarity']  # the others: test_unequal_shards.py
both = pytest.mark.parametrize('name', ['identical', 'by_class'])


def make(name, n=107, workers=4, batch_size=5, seed=0):
  labels = np.random.default_rng(0).integers(0, 10, n)
  return index_stream(PARTITIONS[name](labels, workers), batch_size, seed)


@pytest.mark.parametrize('name', NAMES)
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 8), st.integers(1, 9), st.integers(0, 2**40), st.data())
def test_a_slice_does_not_depend_on_earlier_reads(name, n, workers, batch_size, seed, data):
  n = n + workers * batch_size
  stream, other = (make(name, n, workers, batch_size, seed) for _ in range(2))
  total = 4 * stream.steps_per_epoch + 3
  full = stream.indices(0, total)
  assert full.shape == (total, workers, batch_size)
  assert full.dtype == np.int32
  for _ in range(3):
    step = data.draw(st.integers(0, total))
    count = data.draw(st.integers(0, total - step))
    np.testing.assert_array_equal(other.indices(step, count), full[step : step + count])
    some = data.draw(st.lists(st.integers(0, workers - 1), unique=True))
    np.testing.assert_array_equal(other.indices(step, count, some), full[step : step + count, some])
    np.testing.assert_array_equal(other.global_indices(step, count, some), stream.global_indices(step, count)[:, some])


@pytest.mark.parametrize('name', NAMES)
def test_examples_are_unique_within_an_epoch_and_all_are_used_in_time(name):
  stream = make(name)
  assert stream.steps_per_epoch == 26 // 5
  used = set()
  for epoch in range(30):
    taken = stream.global_indices(epoch * stream.steps_per_epoch, stream.steps_per_epoch).reshape(-1).tolist()
    assert len(set(taken)) == len(taken) == 100
    used |= set(taken)
  partition = stream.partition
  assert len(used) == (107 if partition.shards is None else 104)  # each epoch drops other examples


def test_global_indices_are_those_of_the_same_examples():
  stream = make('by_class')
  local, in_data = stream.indices(3, 40), stream.global_indices(3, 40)
  assert local.min() == 0 and local.max() == stream.partition.shard_size - 1
  for worker, shard in enumerate(stream.partition.shards):
    np.testing.assert_array_equal(shard[local[:, worker]], in_data[:, worker])
  assert in_data.dtype == np.int32


def test_identical_gives_every_worker_all_data():
  indices = make('identical').indices(0, 500)
  for worker in range(4):
    assert set(indices[:, worker].reshape(-1).tolist()) == set(range(107))


@both
def test_epochs_workers_and_seeds_have_different_permutations(name):
  stream = make(name, n=4000, batch_size=100)
  first, second = (stream.indices(epoch * 10, 10) for epoch in (0, 1))
  assert not np.array_equal(first, second)
  for worker in range(1, 4):
    assert not np.array_equal(first[:, 0], first[:, worker])
  assert not np.array_equal(first, make(name, n=4000, batch_size=100, seed=1).indices(0, 10))


def test_the_order_is_random():
  positions = make('by_class', n=8000, workers=2, batch_size=50).indices(0, 80)[:, 0].reshape(-1)
  assert abs(np.corrcoef(positions, np.arange(len(positions)))[0, 1]) < 0.1


def test_partition_and_stream_use_different_random_numbers():
  labels = np.zeros(100, int)
  shuffled = PARTITIONS['similarity'](labels, 1, percent=100, seed=7).shards[0]
  stream = index_stream(PARTITIONS['identical'](labels, 1), 100, seed=7)
  assert not np.array_equal(shuffled, stream.indices(0, 1)[0, 0])


def test_only_the_last_epoch_is_cached():
  stream = make('by_class')
  rows = stream._epoch(0, (0, 1, 2, 3))
  stream.indices(1, 2)
  assert stream._epoch(0, (0, 1, 2, 3)) is rows
  stream.indices(0, 50)
  assert len(stream._cache) == 1


def test_the_result_can_be_changed_by_the_caller():
  stream = make('identical')
  stream.indices(0, 3)[:] = -1
  assert stream.indices(0, 3).min() >= 0


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (
      {'batch_size': 27},
      'batch_size=27, must be at most 26, the number of examples per worker .107 examples, 4 workers.',
    ),
    ({'batch_size': 0}, 'batch_size=0'),
    ({'seed': -1}, 'seed=-1'),
  ],
)
def test_invalid_arguments_raise(arguments, message):
  with pytest.raises(UserError, match=message):
    make('by_class', **arguments)


@both
def test_invalid_steps_and_workers_raise(name):
  with pytest.raises(ValueError, match='step=-1'):
    make(name).indices(-1, 2)
  with pytest.raises(ValueError, match='must be among 0 ... 3'):
    make(name).indices(0, 2, workers=range(2, 5))
