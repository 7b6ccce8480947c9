"""How examples reach the workers and the evaluation."""

import jax
import numpy as np
import pytest

from vrl_jax.data import partition
from vrl_jax.data.stream import index_stream
from vrl_jax.engine.evaluation import eval_parts
from vrl_jax.engine.feed import Feed
from vrl_jax.engine.placement import place_workers
from vrl_jax.errors import UserError

EXAMPLES, WORKERS, BATCH = 43, 4, 3  # 43 = 4 * 10 + 3: three are left out; 10 = 3 * 3 + 1
kinds = pytest.mark.parametrize('kind', ['identical', 'by_class', 'by_label'])
places = pytest.mark.parametrize('where', ['device', 'host'])
device_counts = pytest.mark.parametrize('devices', [4, 2, 1])


def _data():
  rng = np.random.default_rng(0)
  return {
    'id': np.arange(EXAMPLES, dtype=np.int32),
    'x': rng.normal(size=(EXAMPLES, 2, 2)).astype(np.float32),
    'label': rng.integers(0, 5, EXAMPLES).astype(np.int32),
  }


def _feed(kind, where, devices=2, **options):
  data = _data()
  stream = index_stream(partition.PARTITIONS[kind](data['label'], WORKERS), BATCH)
  return Feed(data, stream, place_workers(WORKERS, devices), where=where, **options), stream


def _batches(feed, items):
  """[N, rounds, k, batch, ...] as the engine's steps fetch them."""
  fetch = feed.supply.fetch
  for _ in range(3):  # over k, over the rounds and over the workers of a device
    fetch = jax.vmap(fetch, in_axes=(None, 0))
  batches = jax.vmap(fetch)(feed.supply.data, items)  # over the devices
  return jax.tree.map(lambda x: np.asarray(x).reshape(WORKERS, *x.shape[2:]), batches)


@kinds
@places
@device_counts
def test_batches_have_the_examples_of_the_stream(kind, where, devices):
  feed, stream = _feed(kind, where, devices)
  step, length, rounds = 2, 2, 3  # steps 2 to 7 span epochs of 3
  batches = _batches(feed, feed.items(step, length, rounds))
  expected = stream.global_indices(step, length * rounds)  # [steps, N, batch]
  for worker in range(WORKERS):
    ids = expected[:, worker].reshape(rounds, length, BATCH)
    for name, values in _data().items():
      np.testing.assert_array_equal(batches[name][worker], values[ids])


@kinds
def test_device_and_host_feeds_give_equal_batches(kind):
  batches = [_batches(feed, feed.items(1, 3, 2)) for feed, _ in (_feed(kind, 'device'), _feed(kind, 'host'))]
  jax.tree.map(np.testing.assert_array_equal, *batches)


def test_by_class_workers_get_only_their_shards():
  feed, stream = _feed('by_class', 'device')
  ids = _batches(feed, feed.items(0, 3, 1))['id']
  for worker in range(WORKERS):
    assert set(ids[worker].ravel()) <= set(stream.partition.shards[worker])


@kinds
@places
def test_capacity_pads_without_changing_the_rounds(kind, where):
  feed, _ = _feed(kind, where)
  plain, padded = (_batches(feed, feed.items(0, 3, 2, capacity)) for capacity in (None, 5))
  assert padded['id'].shape == (WORKERS, 5, 3, BATCH)
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:, :2]), plain, padded)


@kinds
@places
def test_items_are_on_the_devices_of_the_workers(kind, where):
  feed, _ = _feed(kind, where, devices=2)
  for leaf in jax.tree.leaves(feed.items(0, 3, 2)):
    assert leaf.shape[:4] == (2, 2, 2, 3)
    assert [shard.data.shape[0] for shard in leaf.addressable_shards] == [1, 1]


def test_host_feed_keeps_no_data_on_the_devices():
  feed, _ = _feed('by_class', 'host')
  assert feed.supply.data is None
  assert not feed.on_device


def test_auto_uses_the_devices_if_the_data_fit(monkeypatch):
  assert _feed('by_class', 'auto')[0].on_device
  monkeypatch.setattr('vrl_jax.engine.feed._host_memory', lambda: 1000)
  assert not _feed('by_class', 'auto')[0].on_device


def test_frozen_constants_are_on_every_device():
  feed, _ = _feed('identical', 'host', devices=4, frozen={'table': np.arange(6.0, dtype=np.float32)})
  np.testing.assert_array_equal(feed.supply.frozen['table'], np.tile(np.arange(6.0), (4, 1)))


def test_an_unknown_feed_is_refused():
  with pytest.raises(UserError, match="feed='disk', must be one of auto, device, host"):
    _feed('identical', 'disk')


def _evaluated(parts, weighted=False):
  """The sorted ids of all examples in the parts."""
  seen = []
  for part in parts:
    ids = np.asarray(part.data['id'])
    for device, rows in enumerate(ids):
      real = np.asarray(part.weight[device]) > 0
      seen.extend(rows[np.asarray(part.indices[device])[real]])
    assert weighted or set(np.unique(part.weight)) <= {0.0, 1.0}
  return sorted(seen)


@kinds
@places
@device_counts
@pytest.mark.parametrize('chunk', [4, 1000])
def test_training_parts_contain_every_example_once(kind, where, devices, chunk):
  feed, _ = _feed(kind, where, devices)
  parts = feed.training_parts(chunk)
  weighted = kind == 'by_label'
  assert _evaluated(parts, weighted) == list(range(EXAMPLES))
  assert _evaluated(parts, weighted) == list(range(EXAMPLES))  # a second time, as at the next log point
  assert all(part.indices.shape[-1] <= chunk for part in parts)


@device_counts
@pytest.mark.parametrize('size', [1, 2, 3, 4, 5, 43])
@pytest.mark.parametrize('chunk', [1, 4, 1000])
def test_eval_parts_contain_every_example_once(devices, size, chunk):
  data = {name: values[:size] for name, values in _data().items()}
  assert _evaluated(eval_parts(data, place_workers(WORKERS, devices), chunk)) == list(range(size))


def test_eval_parts_are_bounded(monkeypatch):
  monkeypatch.setattr('vrl_jax.engine.evaluation.HOST_CHUNK', 5)
  parts = list(eval_parts(_data(), place_workers(WORKERS, 2), chunk=3))
  assert [part.data['id'].shape for part in parts] == [(2, 5)] * 4 + [(2, 2)]
  assert _evaluated(parts) == list(range(EXAMPLES))


def test_no_examples_give_no_parts():
  assert list(eval_parts({'id': np.zeros(0)}, place_workers(WORKERS, 2), chunk=3)) == []
