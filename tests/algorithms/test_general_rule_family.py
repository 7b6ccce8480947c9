"""Every algorithm that can be sent in fragments, with a delay and with few bits, in every combination of them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import quadratics
from support.general_rule import ALL, COMBINATIONS, PROBLEM, X0, check, plain, send, to_tree, trajectory

import vrl_jax

pytestmark = pytest.mark.usefixtures('x64')
in_every_combination = pytest.mark.parametrize('sending', COMBINATIONS, ids=lambda s: f'{s[0]}-{s[1]}-{s[2]}')


@pytest.mark.slow
@in_every_combination
@pytest.mark.parametrize('name', ['local_sgd', 'scaffold', 'vrl_adaptive', 'diloco', 'slowmo'])
def test_the_relatives_equal_numpy(name, sending):
  check(name, sending)


@pytest.mark.slow
@in_every_combination
@pytest.mark.parametrize('name', ['vrl_sgd', 'scaffold'])
def test_momentum_inside_equals_numpy(name, sending):
  check(name, sending, momentum=0.6)


def reaches_the_optimum(algorithm, steps=2500):
  models, corrections = trajectory(algorithm, steps)
  np.testing.assert_allclose(models[-1], np.tile(PROBLEM.optimum, (8, 1)), atol=1e-12)
  assert np.abs(corrections.sum(axis=1)).max() < 1e-11


@pytest.mark.slow
@in_every_combination
@pytest.mark.parametrize('name', ['scaffold', 'vrl_adaptive'])
def test_the_relatives_with_a_correction_reach_the_optimum(name, sending):
  reaches_the_optimum(send(plain(name, optax.sgd(0.03)), sending))


@pytest.mark.slow
@in_every_combination
def test_momentum_inside_reaches_the_optimum(sending):
  reaches_the_optimum(send(plain('vrl_sgd', optax.sgd(0.003, momentum=0.9)), sending), steps=4000)


@pytest.mark.parametrize(
  'sending', [s if s == ALL else pytest.param(s, marks=pytest.mark.slow) for s in COMBINATIONS], ids=str
)
def test_an_outer_optimizer_around_vrl_sgd_reaches_the_optimum(sending):
  outer = vrl_jax.with_outer_optimizer(plain('vrl_sgd', optax.sgd(0.03)), optax.sgd(0.7, momentum=0.3, nesterov=True))
  reaches_the_optimum(send(outer, sending))


def test_as_optax_resumes_in_mid_period_with_a_transfer_under_way():
  algorithm = send(plain('vrl_sgd'), ALL)  # a period of 8: the last fragment starts after 8 steps and ends after 10
  tx = vrl_jax.as_optax(algorithm, 8)
  axes = vrl_jax.state_axes(jax.eval_shape(tx.init, to_tree(X0)))
  batch = {'a': PROBLEM.a, 'c': to_tree(PROBLEM.c)}

  def step(params, state, batch):
    updates, state = tx.update(jax.grad(quadratics.loss)(params, (), batch, None), state, params)
    return optax.apply_updates(params, updates), state

  step = jax.jit(jax.vmap(step, in_axes=(0, axes, 0), out_axes=(0, axes), axis_name='w'))

  def run(params, state, steps):
    for _ in range(steps):
      params, state = step(params, state, batch)
    return params, state

  params = quadratics.replicate(to_tree(X0))
  nine = run(params, jax.vmap(tx.init, out_axes=axes)(params), 9)
  start, now = nine[1].algorithm.transfer.start, nine[0]
  assert all(np.any(x != y) for x, y in zip(jax.tree.leaves(start), jax.tree.leaves(now)))
  stored = jax.tree.map(np.array, nine)
  jax.tree.map(np.testing.assert_array_equal, run(*jax.tree.map(jnp.asarray, stored), 9), run(*nine, 9))
