"""The initial weights: stored once per problem, and SGD until a given loss."""

import operator

import jax
import numpy as np
import optax
import pytest

from vrl_jax.config.files import load_config
from vrl_jax.data.partition import identical
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError
from vrl_jax.tasks.task import make_task
from vrl_jax.training import initial_weights
from vrl_jax.training.initial_weights import initial_model


def small_lenet(**fields):
  config = load_config('lenet_mnist')
  config.update(dataset='mnist_5k', devices=2, epochs=0.5, init_epochs=0.1, period=7, **fields)
  return config


def test_initial_weights_are_computed_once_per_problem(tmp_path):
  config = small_lenet()
  task = make_task(config)
  first = initial_model(config, task, tmp_path)
  (stored,) = tmp_path.glob('initial_*.msgpack')
  written = stored.stat().st_mtime_ns
  for other in (small_lenet(algorithm='local_sgd', workers=4), small_lenet(partition='identical')):
    jax.tree.map(np.testing.assert_array_equal, initial_model(other, task, tmp_path), first)
  assert stored.stat().st_mtime_ns == written
  initial_model(small_lenet(learning_rate=0.1), task, tmp_path)
  assert len(list(tmp_path.glob('initial_*.msgpack'))) == 2


def test_damaged_initial_weights_are_computed_again(tmp_path):
  config = small_lenet()
  task = make_task(config)
  first = initial_model(config, task, tmp_path)
  (stored,) = tmp_path.glob('initial_*.msgpack')
  stored.write_bytes(stored.read_bytes()[:1000])
  jax.tree.map(np.testing.assert_array_equal, initial_model(config, task, tmp_path), first)


def test_init_loss_gives_the_first_step_at_that_loss(tmp_path, monkeypatch):
  """Compared with plain optax and the loss over all training data after every step."""
  monkeypatch.setattr(initial_weights, '_ROUND', 5)
  config = small_lenet(learning_rate=0.02, init_loss=2.25)
  config.init_epochs = 2.0
  task = make_task(config)
  params = task.init(jax.random.key(config.seed))
  tx = optax.chain(optax.add_decayed_weights(config.weight_decay), optax.sgd(config.learning_rate))
  stream = index_stream(identical(task.labels, 1, seed=config.seed), config.batch_size, config.seed)

  @jax.jit
  def step(params, state, batch):
    grads = jax.grad(task.loss)(params, task.frozen, batch, jax.random.key(0))
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state

  loss = jax.jit(lambda params: task.metrics(params, task.frozen, task.train)['loss'].mean())
  state, steps = tx.init(params), 0
  while loss(params) > config.init_loss:
    indices = stream.indices(steps, 1)[0, 0]
    params, state = step(params, state, jax.tree.map(operator.itemgetter(indices), task.train))
    steps += 1
  assert steps > 5 and steps % 5  # after the first round, and within a round
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    initial_model(config, task, tmp_path).params,
    params,
  )


def test_an_init_loss_that_is_not_reached_raises(tmp_path):
  config = small_lenet(init_loss=0.001)
  with pytest.raises(UserError, match='init_loss=0.001: the train loss is still 2.* after init_epochs=0.1'):
    initial_model(config, make_task(config), tmp_path)
