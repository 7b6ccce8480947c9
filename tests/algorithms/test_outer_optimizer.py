"""Outer optimizers: with_outer_optimizer, DiLoCo and SlowMo."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, family_reference

import vrl_jax

pytestmark = pytest.mark.usefixtures('x64')


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd', 'scaffold'])
def test_outer_sgd_with_rate_one_changes_nothing(name):
  make = lambda: vrl_jax.ALGORITHMS[name](optax.sgd(0.03, momentum=0.5), axis_name='w')
  expected, expected_consensus, state = family.run(make())
  models, consensus, outer = family.run(vrl_jax.with_outer_optimizer(make(), optax.sgd(1.0)))
  np.testing.assert_allclose(models, expected, atol=1e-13)
  np.testing.assert_allclose(consensus, expected_consensus, atol=1e-13)
  if name == 'vrl_sgd':
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), outer.algorithm.delta, state.delta)


def test_around_vrl_sgd_it_reaches_the_optimum_unlike_around_local_sgd():
  outer = optax.sgd(0.7, momentum=0.5, nesterov=True)
  distance = {}
  for name in ('local_sgd', 'vrl_sgd'):
    algorithm = vrl_jax.with_outer_optimizer(vrl_jax.ALGORITHMS[name](optax.sgd(0.02), axis_name='w'), outer)
    models, _, _ = family.run(algorithm, [10] * 60)
    distance[name] = np.abs(models[-1] - family.PROBLEM.optimum).max()
  assert distance['vrl_sgd'] < 1e-9
  assert distance['local_sgd'] > 1e-3


def test_the_outer_optimizer_may_use_its_params():
  decay = optax.chain(optax.add_decayed_weights(0.25), optax.sgd(1.0))
  algorithm = vrl_jax.with_outer_optimizer(vrl_jax.local_sgd(optax.sgd(0.5), axis_name='w'), decay)
  models, _ = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 1, jnp.array([4.0, 4.0]))
  np.testing.assert_array_equal(models, [[2, 2]])  # 4 - (4 - 3 + 0.25·4)


def test_diloco_by_hand():
  # Every round moves the mean by -1. α = 0.5, β = 0.5.
  # m = 1, a step of 0.5·(1 + 0.5); then m = 1.5, a step of 0.5·(1 + 0.75).
  algorithm = vrl_jax.diloco(optax.sgd(0.5), outer_learning_rate=0.5, outer_momentum=0.5, axis_name='w')
  models, _ = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 2, jnp.zeros(2))
  np.testing.assert_allclose(models, [[-0.75] * 2, [-0.75 - 0.875] * 2])


def test_diloco_against_numpy():
  algorithm = vrl_jax.diloco(family.falling_sgd(), axis_name='w')
  models, _, _ = family.run(algorithm)
  expected = family_reference.diloco(family.PROBLEM, family.rate, family.LENGTHS, family.X0, alpha=0.7, beta=0.9)
  np.testing.assert_allclose(models, expected, atol=1e-12)


def test_diloco_with_adamw_keeps_the_buffers_local():
  algorithm = vrl_jax.diloco(optax.adamw(0.02), axis_name='w')
  with jax.numpy_dtype_promotion('standard'):  # required by optax's Adam
    models, _, state = family.run(algorithm, [5] * 60)
  assert np.abs(models[-1] - family.PROBLEM.optimum).max() < 0.5 < np.abs(family.X0 - family.PROBLEM.optimum).max()
  mu = np.asarray(state.algorithm[0].mu['scalar'])
  assert np.ptp(mu) > 0.1
  np.testing.assert_array_equal(np.ptp(models[-1], axis=0), 0)


def test_slowmo_by_hand():
  # γ = 0.5, two steps a round with the mean gradient 2: a response of 1 and a move of -2 a round.
  # u = 2, x = -0.5·1·2 = -1; u = 0.5·2 + 2 = 3, x = -1 - 1.5.
  algorithm = vrl_jax.slowmo(optax.sgd(0.5), slow_learning_rate=0.5, slow_momentum=0.5, axis_name='w')
  models, state = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])] * 2, 2, jnp.zeros(2))
  np.testing.assert_allclose(models, [[-1] * 2, [-2.5] * 2])
  np.testing.assert_allclose(state.slow, [3, 3])


def test_slowmo_against_numpy_with_a_schedule_and_unequal_periods():
  algorithm = vrl_jax.slowmo(family.falling_sgd(), slow_learning_rate=0.9, slow_momentum=0.6, axis_name='w')
  models, _, _ = family.run(algorithm)
  expected = family_reference.slowmo(family.PROBLEM, family.rate, family.LENGTHS, family.X0, alpha=0.9, beta=0.6)
  np.testing.assert_allclose(models, expected, atol=1e-12)


@pytest.mark.parametrize(('momentum', 'buffers'), [(None, 'keep'), (0.5, 'reset')])
def test_slowmo_at_a_constant_response_is_an_outer_sgd_with_momentum(momentum, buffers):
  inner = lambda: optax.sgd(0.03, momentum=momentum)
  slow = vrl_jax.slowmo(inner(), slow_learning_rate=0.9, slow_momentum=0.6, buffers=buffers, axis_name='w')
  local = vrl_jax.local_sgd(inner(), buffers=buffers, axis_name='w')
  outer = vrl_jax.with_outer_optimizer(local, optax.sgd(0.9, momentum=0.6))
  np.testing.assert_allclose(family.run(slow, [4] * 5)[0], family.run(outer, [4] * 5)[0], atol=1e-12)


@pytest.mark.parametrize('buffers', ['keep', 'mean', 'reset'])
def test_slowmo_without_slow_momentum_is_local_sgd(buffers):
  inner = lambda: optax.sgd(0.03, momentum=0.5)
  slow = vrl_jax.slowmo(inner(), slow_momentum=0.0, buffers=buffers, axis_name='w')
  local = vrl_jax.local_sgd(inner(), buffers=buffers, axis_name='w')
  np.testing.assert_allclose(family.run(slow)[0], family.run(local)[0], atol=1e-13)


def test_slowmo_with_a_zero_rate_does_not_move():
  algorithm = vrl_jax.slowmo(optax.sgd(0.0), axis_name='w')
  models, state = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 2, jnp.ones(2))
  np.testing.assert_array_equal(models, 1)
  np.testing.assert_array_equal(state.slow, 0)


@pytest.mark.parametrize('options', [{'slow_momentum': 1.0}, {'slow_momentum': -0.1}, {'slow_learning_rate': 0.0}])
def test_slowmo_bad_options(options):
  (name,) = options
  with pytest.raises(ValueError, match=f'{name}={options[name]}'):
    vrl_jax.slowmo(optax.sgd(0.1), **options)
