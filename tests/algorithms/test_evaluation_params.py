"""The consensus of schedule-free optimizers is their evaluation point x, not y, where the gradient is computed."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vrl_jax
from vrl_jax.algorithms.core.evaluation import evaluation_params

TARGETS = np.array([[0.0], [1.0], [5.0]], np.float32)
WRAPPED = {
  'alone': lambda sgd: sgd,
  'in a chain': lambda sgd: optax.chain(optax.add_decayed_weights(0.01), sgd),
  'masked': lambda sgd: optax.masked(sgd, {'w': True, 'frozen': False}),
}


def schedule_free():
  return optax.contrib.schedule_free_sgd(0.1, b1=0.8)


def averages(state, y):
  """x of each worker by optax's function."""
  is_state = lambda node: isinstance(node, optax.contrib.ScheduleFreeState)
  found = next(filter(is_state, jax.tree.leaves(state, is_leaf=is_state)))
  return jax.vmap(optax.contrib.schedule_free_eval_params)(found, y)


@pytest.mark.parametrize(
  'name', ['s_sgd', 'local_sgd', 'cocod_sgd', 'vrl_adaptive', 'vrl_sgd', 'scaffold', 'slowmo', 'diloco', 'd2', 'extra']
)
def test_the_consensus_is_the_mean_of_the_evaluation_points(name):
  algorithm = vrl_jax.ALGORITHMS[name](schedule_free(), axis_name='w')
  y = jnp.zeros((3, 1))
  state = jax.vmap(algorithm.transform.init)(y)
  update = jax.jit(jax.vmap(algorithm.transform.update, axis_name='w'))
  for _ in range(5):
    updates, state = update(y - TARGETS, state, y)
    y = y + updates
  model = jax.vmap(algorithm.consensus, axis_name='w')(y, state)
  expected = averages(state, y).mean(axis=0)
  np.testing.assert_allclose(model, np.broadcast_to(expected, (3, 1)), rtol=1e-6)
  assert np.abs(expected - y.mean(axis=0)).max() > 1e-3  # y is something else


@pytest.mark.parametrize('wrapped', WRAPPED)
def test_it_is_found_at_any_depth(wrapped):
  optimizer, y = WRAPPED[wrapped](schedule_free()), {'w': jnp.ones(2), 'frozen': jnp.ones(3)}
  state = optimizer.init(y)
  grads = {'w': jnp.ones(2), 'frozen': jnp.zeros(3)}
  for _ in range(3):
    updates, state = optimizer.update(grads, state, y)
    y = optax.apply_updates(y, updates)
  x = evaluation_params(y, state)
  assert np.abs(x['w'] - y['w']).min() > 1e-3
  if wrapped != 'in a chain':
    np.testing.assert_array_equal(x['frozen'], y['frozen'])


def test_narrow_parameters_keep_their_dtype():
  optimizer, y = schedule_free(), jnp.ones(2, jnp.bfloat16)
  with jax.numpy_dtype_promotion('standard'):
    _, state = optimizer.update(jnp.ones(2, jnp.bfloat16), optimizer.init(y), y)
  assert evaluation_params(y, state).dtype == jnp.bfloat16


def test_other_optimizers_are_evaluated_where_they_are():
  y = jnp.ones(2)
  assert evaluation_params(y, optax.adam(0.1).init(y)) is y
