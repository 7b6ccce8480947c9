"""The index stream: a pure function of (seed, step)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrl_jax.data.partition import PARTITIONS
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError

NAMES = ['identical', 'by_class', 'dirichlet', 'similarity']
both = pytest.mark.parametrize('name', ['identical', 'by_class'])


def make(name, n=107, workers=4, batch_size=5, seed=0):
  labels = np.random.default_rng(0).integers(0, 10, n)
  return index_stream(PARTITIONS[name](labels, workers), batch_size, seed)


@pytest.mark.parametrize('name', NAMES)
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 8), st.integers(1, 9), st.integers(0, 2**40), st.data())
def test_any_piece_equals_the_uninterrupted_stream(name, n, workers, batch_size, seed, data):
  n = n + workers * batch_size
  stream, other = (make(name, n, workers, batch_size, seed) for _ in range(2))
  total = 4 * stream.steps_per_epoch + 3
  whole = stream.indices(0, total)
  assert whole.shape == (total, workers, batch_size)
  assert whole.dtype == np.int32
  for _ in range(3):
    step = data.draw(st.integers(0, total))
    count = data.draw(st.integers(0, total - step))
    np.testing.assert_array_equal(other.indices(step, count), whole[step : step + count])
    some = data.draw(st.lists(st.integers(0, workers - 1), unique=True))
    np.testing.assert_array_equal(other.indices(step, count, some), whole[step : step + count, some])
    np.testing.assert_array_equal(other.global_indices(step, count, some), stream.global_indices(step, count)[:, some])


@pytest.mark.parametrize('name', NAMES)
def test_every_example_at_most_once_an_epoch_and_all_in_time(name):
  stream = make(name)
  assert stream.steps_per_epoch == 26 // 5
  ever = set()
  for epoch in range(30):
    taken = stream.global_indices(epoch * stream.steps_per_epoch, stream.steps_per_epoch).reshape(-1).tolist()
    assert len(set(taken)) == len(taken) == 100
    ever |= set(taken)
  partition = stream.partition
  assert len(ever) == (107 if partition.shards is None else 104)  # the rest of an epoch is another's


def test_fixed_shards_give_places_in_the_shard_and_the_same_examples_globally():
  stream = make('by_class')
  local, everywhere = stream.indices(3, 40), stream.global_indices(3, 40)
  assert local.min() == 0 and local.max() == stream.partition.shard_size - 1
  for worker, shard in enumerate(stream.partition.shards):
    np.testing.assert_array_equal(shard[local[:, worker]], everywhere[:, worker])
  assert everywhere.dtype == np.int32


def test_identical_reaches_all_data_from_every_worker():
  indices = make('identical').indices(0, 500)
  for worker in range(4):
    assert set(indices[:, worker].reshape(-1).tolist()) == set(range(107))


@both
def test_epochs_workers_and_seeds_differ(name):
  stream = make(name, n=4000, batch_size=100)
  first, second = (stream.indices(epoch * 10, 10) for epoch in (0, 1))
  assert not np.array_equal(first, second)
  for worker in range(1, 4):
    assert not np.array_equal(first[:, 0], first[:, worker])
  assert not np.array_equal(first, make(name, n=4000, batch_size=100, seed=1).indices(0, 10))


def test_the_stream_is_a_shuffle():
  positions = make('by_class', n=8000, workers=2, batch_size=50).indices(0, 80)[:, 0].reshape(-1)
  assert abs(np.corrcoef(positions, np.arange(len(positions)))[0, 1]) < 0.1


def test_partition_and_stream_do_not_draw_the_same_numbers():
  labels = np.zeros(100, int)
  shuffled = PARTITIONS['similarity'](labels, 1, percent=100, seed=7).shards[0]
  stream = index_stream(PARTITIONS['identical'](labels, 1), 100, seed=7)
  assert not np.array_equal(shuffled, stream.indices(0, 1)[0, 0])


def test_only_the_current_epoch_is_kept_and_shuffled_once():
  stream = make('by_class')
  rows = stream._epoch(0, (0, 1, 2, 3))
  stream.indices(1, 2)
  assert stream._epoch(0, (0, 1, 2, 3)) is rows
  stream.indices(0, 50)
  assert len(stream._cache) == 1


def test_what_comes_back_is_the_callers_own():
  stream = make('identical')
  stream.indices(0, 3)[:] = -1
  assert stream.indices(0, 3).min() >= 0


@pytest.mark.parametrize(
  ('arguments', 'says'),
  [
    ({'batch_size': 27}, 'batch_size=27 is more than the 26 examples of a worker .107 examples, 4 workers.'),
    ({'batch_size': 0}, 'batch_size=0'),
    ({'seed': -1}, 'seed=-1'),
  ],
)
def test_errors(arguments, says):
  with pytest.raises(UserError, match=says):
    make('by_class', **arguments)


@both
def test_a_step_or_worker_that_is_not_there(name):
  with pytest.raises(ValueError, match='step=-1'):
    make(name).indices(-1, 2)
  with pytest.raises(ValueError, match='must be among 0 ... 3'):
    make(name).indices(0, 2, workers=range(2, 5))
