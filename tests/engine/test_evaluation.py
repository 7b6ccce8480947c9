"""Exact means over a split of any size."""

import jax.numpy as jnp
import numpy as np
import pytest

from vrl_jax.data import partition
from vrl_jax.data.stream import index_stream
from vrl_jax.engine.evaluation import eval_parts, make_evaluator
from vrl_jax.engine.feed import Feed
from vrl_jax.engine.placement import place_workers


def _data(size):
  rng = np.random.default_rng(size)
  return {'x': rng.normal(size=(size, 3)).astype(np.float32), 'label': rng.integers(0, 2, size).astype(np.int32)}


PARAMS = np.array([0.5, -1.0, 2.0], np.float32)
FROZEN = np.float32(0.25)


def _metrics(params, frozen, batch):
  score = batch['x'] @ params + frozen
  return {'loss': jnp.square(score), 'accuracy': (score > 0) == (batch['label'] == 1)}


def _expected(data):
  score = data['x'].astype(np.float64) @ PARAMS + FROZEN
  return {'loss': np.mean(score**2), 'accuracy': np.mean((score > 0) == (data['label'] == 1))}


def _check(means, data):
  expected = _expected(data)
  assert means.keys() == expected.keys()
  assert all(isinstance(value, float) for value in means.values())
  for name, value in expected.items():
    np.testing.assert_allclose(means[name], value, rtol=2e-6, err_msg=name)


@pytest.mark.parametrize('devices', [4, 1])
def test_means_of_any_size(devices):
  placement = place_workers(4, devices)
  evaluate = make_evaluator(_metrics, placement)
  params, frozen = placement.replicate(PARAMS), placement.replicate(FROZEN)
  for size in (1, 3, 4, 5, 16, 43):
    data = _data(size)
    _check(evaluate(params, frozen, eval_parts(data, placement, chunk=4)), data)


def test_several_parts_are_weighted_by_their_sizes(monkeypatch):
  monkeypatch.setattr('vrl_jax.engine.evaluation.HOST_CHUNK', 5)
  placement = place_workers(4, 2)
  data = _data(43)
  parts = list(eval_parts(data, placement, chunk=5))
  assert len(parts) == 5
  evaluate = make_evaluator(_metrics, placement)
  _check(evaluate(placement.replicate(PARAMS), placement.replicate(FROZEN), parts), data)


@pytest.mark.parametrize('kind', ['identical', 'by_class'])
@pytest.mark.parametrize('where', ['device', 'host'])
def test_training_data_including_the_examples_left_out(kind, where):
  placement, data = place_workers(4, 2), _data(43)
  stream = index_stream(partition.PARTITIONS[kind](data['label'], 4), batch_size=3)
  feed = Feed(data, stream, placement, where=where)
  evaluate = make_evaluator(_metrics, placement)
  params, frozen = placement.replicate(PARAMS), placement.replicate(FROZEN)
  for _ in range(2):
    _check(evaluate(params, frozen, feed.training_parts(chunk=4)), data)


def test_padding_cannot_poison_the_mean():
  # Padding repeats an example; here the padded copies make the metric infinite.
  placement = place_workers(4, 4)
  evaluate = make_evaluator(lambda params, frozen, batch: {'inverse': 1 / (batch['x'] - params)}, placement)
  data = {'x': np.array([1.0, 2.0, 4.0, 5.0, 8.0], np.float32)}
  parts = list(eval_parts(data, placement, chunk=3))
  poisoned = [part._replace(data={'x': jnp.where(_padding(part), 0.0, part.data['x'])}) for part in parts]
  zeros = placement.replicate(np.float32(0))
  means = evaluate(zeros, placement.replicate(()), poisoned)
  np.testing.assert_allclose(means['inverse'], np.mean(1 / data['x']), rtol=1e-6)


def _padding(part):
  """The rows [D, n] that no index with a positive weight refers to."""
  used = np.zeros(part.data['x'].shape, bool)
  for device, (indices, weight) in enumerate(zip(np.asarray(part.indices), np.asarray(part.weight))):
    used[device, indices[weight > 0]] = True
  return ~used


def test_each_device_evaluates_its_own_copy_of_the_model():
  placement = place_workers(4, 2)
  evaluate = make_evaluator(lambda params, frozen, batch: {'value': params * batch['x']}, placement)
  parts = eval_parts({'x': np.ones(4, np.float32)}, placement, chunk=4)
  copies = placement.split(np.array([1.0, 3.0, 5.0, 7.0], np.float32))[:, 0]
  assert evaluate(copies, placement.replicate(()), parts) == {'value': (1.0 + 5.0) / 2}
