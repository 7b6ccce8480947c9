"""The initial weights: stored once per problem, and SGD until a given loss."""

import operator

import jax
import numpy as np
import optax
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.launches import one_line

from vrl_jax.config.files import load_config
from vrl_jax.data.partition import identical
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError
from vrl_jax.tasks.task import make_task
from vrl_jax.training import initial_weights
from vrl_jax.training.fingerprint import data_fields
from vrl_jax.training.initial_weights import initial_model


def small_lenet(**fields):
  config = load_config('lenet_mnist')
  config.update(dataset='mnist_5k', devices=2, epochs=0.5, init_epochs=0.1, period=7, **fields)
  return config


def small_quadratic(**fields):
  config = load_config('quadratic')
  config.update(init_epochs=1.0, **fields)
  return config


def make_initial(config, directory):
  task = make_task(config)
  return initial_model(config, task, directory, data_fields(task))


def test_initial_weights_are_computed_once_per_problem(tmp_path):
  first = make_initial(small_lenet(), tmp_path)
  (stored,) = tmp_path.glob('initial_*.msgpack')
  written = stored.stat().st_mtime_ns
  for other in (small_lenet(algorithm='local_sgd', workers=4), small_lenet(partition='identical')):
    jax.tree.map(np.testing.assert_array_equal, make_initial(other, tmp_path), first)
  assert stored.stat().st_mtime_ns == written
  make_initial(small_lenet(learning_rate=0.1), tmp_path)
  assert len(list(tmp_path.glob('initial_*.msgpack'))) == 2


def test_initial_weights_of_other_data_are_not_used(tmp_path):
  """The quadratics of four workers have other minima than those of two, with the same fields of the problem."""
  models = [make_initial(small_quadratic(a=(), c=(), workers=workers), tmp_path) for workers in (2, 4)]
  assert len(list(tmp_path.glob('initial_*.msgpack'))) == 2
  assert models[0].params != models[1].params


def test_damaged_initial_weights_are_computed_again(tmp_path, capfd):
  first = make_initial(small_lenet(), tmp_path)
  (stored,) = tmp_path.glob('initial_*.msgpack')
  content = stored.read_bytes()
  stored.write_bytes(content[:1000])
  assert capfd.readouterr().err == ''
  jax.tree.map(np.testing.assert_array_equal, make_initial(small_lenet(), tmp_path), first)
  line = one_line(capfd.readouterr().err)
  assert line.startswith(f'{stored}: cannot be used (') and line.endswith('); computing the initial weights again')
  assert stored.read_bytes() == content
  make_initial(small_lenet(), tmp_path)
  assert capfd.readouterr().err == ''


def test_no_flipped_bit_in_the_initial_weights_is_accepted(tmp_path, monkeypatch, capfd):
  """Every bit of a small file: the weights are those that were stored, or they are computed again."""
  config = small_quadratic(dimension=3)
  first = make_initial(config, tmp_path)
  (stored,) = tmp_path.glob('initial_*.msgpack')
  content = stored.read_bytes()
  computed = []
  monkeypatch.setattr(initial_weights, '_plain_sgd', lambda *args: computed.append(0) or first)
  for bit in range(8 * len(content)):
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    stored.write_bytes(flipped)
    np.testing.assert_array_equal(make_initial(config, tmp_path).params, first.params, err_msg=f'bit {bit}')
    assert len(capfd.readouterr().err.splitlines()) == len(computed), f'bit {bit}'
    computed.clear()


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
    initial_model(config, task, tmp_path, data_fields(task)).params,
    params,
  )


def test_an_init_loss_that_is_not_reached_raises(tmp_path):
  config = small_lenet(init_loss=0.001)
  with pytest.raises(UserError, match='init_loss=0.001: the train loss is still 2.* after init_epochs=0.1'):
    make_initial(config, tmp_path)
