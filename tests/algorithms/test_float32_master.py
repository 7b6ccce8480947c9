"""bfloat16 parameters: they stall, unless a float32 master adds up their updates."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vrl_jax

WORKERS, PERIOD, ROUNDS = 4, 4, 150
TARGETS = np.linspace(-1, 3, WORKERS * 5).reshape(WORKERS, 5)
OPTIMUM = TARGETS.mean(axis=0)  # equal curvatures, so that Local SGD has no bias
# The other algorithms take the same path through the combinator.
some = pytest.mark.parametrize('name', ['s_sgd', 'local_sgd', 'easgd', 'vrl_sgd'])


@functools.cache
def trained(name, dtype, master):
  """(consensus model, parameters, state) after training."""
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.01), axis_name='w')
  algorithm = vrl_jax.with_float32_master(algorithm) if master else algorithm
  x = jnp.zeros((WORKERS, 5), dtype)
  state = jax.vmap(algorithm.transform.init)(x)

  def step(carry, _):
    x, state, target = carry
    updates, state = algorithm.transform.update((x - target).astype(dtype), state, x)
    return (optax.apply_updates(x, updates), state, target), None

  def one_round(x, state, target):
    (x, state, _), _ = jax.lax.scan(step, (x, state, target), length=PERIOD)
    return algorithm.communicate(x, state)

  one_round = jax.jit(jax.vmap(one_round, axis_name='w'))
  for _ in range(ROUNDS):
    x, state = one_round(x, state, jnp.asarray(TARGETS, dtype))
  return jax.vmap(algorithm.consensus, axis_name='w')(x, state), x, state


def error(name, dtype, master):
  return np.abs(np.asarray(trained(name, dtype, master)[0], np.float64) - OPTIMUM).max()


@some
def test_it_reaches_the_optimum_as_float32_does(name):
  rounding = 2**-8 * np.abs(OPTIMUM).max()
  assert error(name, jnp.bfloat16, True) < error(name, jnp.float32, False) + 1.5 * rounding


@pytest.mark.parametrize('name', ['s_sgd', 'local_sgd'])
def test_without_it_they_stall(name):
  """What the combinator is for."""
  assert error(name, jnp.bfloat16, False) > 5 * error(name, jnp.bfloat16, True)


def test_the_parameters_follow_the_master_and_the_deltas_sum_to_zero():
  model, x, state = trained('vrl_sgd', jnp.bfloat16, True)
  assert {leaf.dtype for leaf in jax.tree.leaves((model, x))} == {jnp.dtype('bfloat16')}
  assert {leaf.dtype for leaf in jax.tree.leaves((state.params, state.algorithm.delta))} == {jnp.dtype('float32')}
  np.testing.assert_array_equal(x, state.params.astype(jnp.bfloat16))
  np.testing.assert_allclose(state.algorithm.delta.sum(axis=0), 0, atol=1e-4)  # rounding over 150 rounds
  np.testing.assert_allclose(state.algorithm.delta, OPTIMUM - TARGETS, atol=0.02)


@some
def test_float32_parameters_do_not_need_it(name):
  plain, wrapped = (trained(name, jnp.float32, master)[0] for master in (False, True))
  np.testing.assert_allclose(plain, wrapped, atol=2e-6)


def test_params_are_needed():
  transform = vrl_jax.with_float32_master(vrl_jax.local_sgd(optax.sgd(0.1))).transform
  with pytest.raises(ValueError, match='needs the parameters'):
    transform.update(jnp.ones(1), transform.init(jnp.ones(1)))
