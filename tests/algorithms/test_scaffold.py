"""SCAFFOLD: numbers by hand, equality with VRL-SGD, partial participation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, family_reference, quadratics

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES

pytestmark = pytest.mark.usefixtures('x64')


def _scaffold(inner, **options):
  return vrl_jax.scaffold(inner, axis_name='w', **options)


def test_by_hand():
  # γ = 0.5, η_g = 2, one step a round, gradients 1 and 3.
  # Round 1: y = -0.5, -1.5; c_i = 1, 3 and c = 2; x = 2·(-1) = -2.
  # Round 2: both see g_i - c_i + c = 2, so y = -3; c_i - c + 2 = 1, 3 again; x = -2 + 2·(-1) = -4.
  algorithm = _scaffold(optax.sgd(0.5), global_learning_rate=2.0)
  models, state = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 2, jnp.zeros(2))
  np.testing.assert_array_equal(models, [[-2, -2], [-4, -4]])
  np.testing.assert_array_equal(state.own, [1, 3])
  np.testing.assert_array_equal(state.mean, [2, 2])
  np.testing.assert_array_equal(state.round, [2, 2])


@pytest.mark.parametrize('global_rate', [1.0, 0.6])
def test_against_numpy(global_rate):
  algorithm = _scaffold(family.falling_sgd(), global_learning_rate=global_rate)
  models, _, state = family.run(algorithm)
  expected, own, common = family_reference.scaffold(
    family.PROBLEM, family.rate, family.LENGTHS, family.X0, global_rate=global_rate
  )
  np.testing.assert_allclose(models, expected, atol=1e-12)
  np.testing.assert_allclose(quadratics.to_flat(state.own), own, atol=1e-10)
  np.testing.assert_allclose(quadratics.to_flat(state.mean), np.tile(common, (8, 1)), atol=1e-10)


@pytest.mark.parametrize('inner', ['plain', 'nesterov', 'decay'])
def test_it_equals_vrl_sgd(inner):
  make = {
    'plain': lambda: optax.sgd(0.03),
    'nesterov': lambda: optax.sgd(0.02, momentum=0.7, nesterov=True),
    'decay': lambda: optax.chain(optax.add_decayed_weights(0.1), family.falling_sgd()),
  }[inner]
  lengths = [1] + [7] * 6
  models, _, state = family.run(_scaffold(make()), lengths)
  expected, _, vrl = family.run(vrl_jax.vrl_sgd(make(), axis_name='w'), lengths)
  np.testing.assert_allclose(models, expected, atol=1e-12)
  correction = quadratics.to_flat(_scaffold(make()).correction(state))
  np.testing.assert_allclose(correction, quadratics.to_flat(vrl.delta), atol=1e-11)


def _subsets(seed, count, workers=8):
  """The subset of each round, observed as the workers whose control variate changes."""
  algorithm = _scaffold(optax.sgd(0.1), participation=count / workers, seed=seed)
  gradients, params, state = jnp.arange(1.0, 9.0), jnp.zeros(8), jax.vmap(algorithm.transform.init)(jnp.zeros(8))
  update = jax.jit(jax.vmap(algorithm.transform.update, axis_name='w'))
  communicate = jax.jit(jax.vmap(algorithm.communicate, axis_name='w'))
  subsets = []
  for number in range(12):
    updates, state = update(gradients * (1 + number), state, params)
    before = np.asarray(state.own)
    params, state = communicate(params + updates, state)
    subsets.append(tuple(np.flatnonzero(before != np.asarray(state.own)).tolist()))
    assert np.ptp(params) == 0
  return subsets


def test_subsets_are_random_have_the_right_size_and_depend_on_the_seed():
  subsets = _subsets(0, 3)
  assert [len(subset) for subset in subsets] == [3] * 12
  assert len(set(subsets)) > 6
  assert set(sum(subsets, ())) == set(range(8))
  assert subsets == _subsets(0, 3)
  assert subsets != _subsets(1, 3)


def test_partial_participation_against_numpy():
  subsets = _subsets(5, 3)[: len(family.LENGTHS)]  # the subsets do not depend on the problem
  algorithm = _scaffold(family.falling_sgd(), participation=3 / 8, global_learning_rate=0.8, seed=5)
  models, _, state = family.run(algorithm)
  expected, own, common = family_reference.scaffold(
    family.PROBLEM, family.rate, family.LENGTHS, family.X0, global_rate=0.8, subsets=[list(s) for s in subsets]
  )
  np.testing.assert_allclose(models, expected, atol=1e-12)
  np.testing.assert_allclose(quadratics.to_flat(state.own), own, atol=1e-10)
  np.testing.assert_allclose(quadratics.to_flat(state.mean)[2], common, atol=1e-10)


def test_partial_participation_reaches_the_optimum_on_any_number_of_devices():
  def final(devices):
    inner = optax.sgd(0.05)
    algorithm = vrl_jax.scaffold(inner, participation=0.5, seed=2, axis_name=AXES)
    engine = quadratics.make_engine(algorithm, family.PROBLEM, devices=devices)
    state, items = engine.init(quadratics.start(family.X0)), quadratics.items(engine, 3, 300)
    state, _ = engine.run(state, items, 300)
    return quadratics.worker_models(state)

  four = final(4)
  np.testing.assert_allclose(four, np.tile(family.PROBLEM.optimum, (8, 1)), atol=1e-9)
  np.testing.assert_allclose(final(1), four, atol=1e-12)


def test_a_zero_rate_at_the_start_leaves_the_control_variates_at_zero():
  algorithm = _scaffold(optax.sgd(lambda count: jnp.where(count < 2, 0.0, 0.1)))
  models, state = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 2, jnp.zeros(2))
  np.testing.assert_array_equal(models, 0)
  np.testing.assert_array_equal(state.own, 0)
  _, state = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 3, jnp.zeros(2))
  np.testing.assert_allclose(state.own, [1, 3])


def test_a_zero_rate_in_mid_run_leaves_the_control_variates_unchanged():
  algorithm = _scaffold(optax.sgd(lambda count: jnp.where(count == 1, 0.0, 0.1)))
  after_one = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 1, jnp.zeros(2))[1]
  after_two = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 2, jnp.zeros(2))[1]
  np.testing.assert_allclose(after_one.own, [1, 3])
  np.testing.assert_array_equal(after_two.own, after_one.own)
  np.testing.assert_array_equal(after_two.mean, after_one.mean)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'participation': 0.0}, r'participation=0.0, must be in \(0, 1\]'),
    ({'participation': 1.5}, 'participation=1.5'),
    ({'global_learning_rate': 0.0}, 'global_learning_rate=0.0, must be positive'),
  ],
)
def test_bad_options(options, message):
  with pytest.raises(ValueError, match=message):
    vrl_jax.scaffold(optax.sgd(0.1), **options)


def test_adam_is_rejected():
  with jax.numpy_dtype_promotion('standard'), pytest.raises(ValueError, match='not linear'):
    vrl_jax.scaffold(optax.adam(0.1)).transform.init(jnp.zeros(3))
