"""as_optax: the engine's trajectory in any training loop, its stages, and optax's own wrappers around it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, quadratics
from support import numpy_reference as reference
from support.algorithms import every_kind
from support.quadratics import training_loop, under_pmap, under_shard_map, under_vmap

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.periods import make_periods, post_local, stagewise

pytestmark = pytest.mark.usefixtures('x64')
every_algorithm = pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)


def _inner():
  return optax.sgd(optax.exponential_decay(0.03, 10, 0.5), momentum=0.5)


def _make(name, inner=None, axis_name='w'):
  return vrl_jax.ALGORITHMS[name](inner or _inner(), axis_name=axis_name)


def _models(mapped):
  """[T, N, 7]."""
  return quadratics.run_loops(mapped, family.PROBLEM, family.X0)


# The engine's trajectory.

STEPS = 11


@functools.cache
def _engine_models(name, period, first_period):
  lengths = reference.lengths(STEPS, period, first_period)
  if STEPS not in np.cumsum(reference.lengths(STEPS - 1 + period, period, first_period)):
    lengths = lengths[:-1]  # as_optax does not know when the run ends, so it does not end the last partial period
  engine = quadratics.make_engine(_make(name, axis_name=AXES), family.PROBLEM, devices=2)
  models, _ = quadratics.run_engine(engine, lengths, family.X0)
  return np.cumsum(lengths) - 1, models


@every_algorithm
@pytest.mark.parametrize('mapped', [under_vmap, under_shard_map])
def test_it_equals_the_engine(name, mapped):
  ends, expected = _engine_models(name, 4, None)
  models = _models(mapped(training_loop(vrl_jax.as_optax(_make(name), 4), STEPS)))
  np.testing.assert_allclose(models[ends], expected, atol=1e-13)


@pytest.mark.parametrize(('period', 'first_period'), [(1, None), (4, 1), (3, 5)])
@pytest.mark.parametrize('mapped', [under_vmap, under_pmap])
def test_it_equals_the_engine_for_other_periods(mapped, period, first_period):
  ends, expected = _engine_models('vrl_sgd', period, first_period)
  models = _models(mapped(training_loop(vrl_jax.as_optax(_make('vrl_sgd'), period, first_period), STEPS)))
  np.testing.assert_allclose(models[ends], expected, atol=1e-13)


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd'])
def test_it_communicates_when_due_and_at_no_other_step(name):
  models = _models(under_vmap(training_loop(vrl_jax.as_optax(_make(name), 4, first_period=2), STEPS)))
  agree = np.ptp(models, axis=1).max(axis=1) < 1e-12
  assert np.flatnonzero(agree).tolist() == [1, 5, 9]


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd'])
@pytest.mark.parametrize('mapped', [under_vmap, under_pmap, under_shard_map])
def test_last_in_a_chain(name, mapped):
  clip = optax.clip_by_global_norm(1.0)
  chained = _models(mapped(training_loop(optax.chain(clip, vrl_jax.as_optax(_make(name), 4)), STEPS)))
  expected, _, _ = family.run(vrl_jax.precede(clip, _make(name)), [4, 4])
  np.testing.assert_allclose(chained[:8], expected, atol=1e-13)
  unclipped = _models(mapped(training_loop(vrl_jax.as_optax(_make(name), 4), STEPS)))
  assert np.abs(chained - unclipped).max() > 1e-2


@every_algorithm
def test_extra_arguments_pass(name):
  tx = vrl_jax.as_optax(_make(name), 2)
  assert isinstance(tx, optax.GradientTransformationExtraArgs)
  params = quadratics.replicate(quadratics.start(family.X0))
  state = jax.vmap(tx.init)(params)
  step = lambda g, s, x: tx.update(g, s, x, value=1.0)
  _, new = jax.eval_shape(jax.vmap(step, axis_name='w'), params, state, params)
  jax.tree.map(lambda a, b: np.testing.assert_equal((a.shape, a.dtype), (b.shape, b.dtype)), state, new)


# Stages.


@pytest.mark.parametrize(
  ('stages', 'first'),
  [(post_local(4, 3), None), (stagewise(1, (3, 9)), None), (((0, 3), (2, 1), (4, 5)), 2), ([[0, 2], [4, 3]], 1)],
)
def test_stages_equal_the_rounds_of_the_engine(stages, first):
  algorithm = _make('vrl_sgd', family.falling_sgd())
  models = _models(under_vmap(training_loop(vrl_jax.as_optax(algorithm, stages, first), 20)))
  lengths = [length for _, length in make_periods(20, 1, first, stages).rounds()]
  expected, _, _ = family.run(algorithm, lengths)
  last = 20 - lengths[-1]  # as_optax does not know when the run ends
  np.testing.assert_allclose(models[:last], expected[:last], atol=1e-12)


# Bad arguments.


@pytest.mark.parametrize('period', [0, -3, 2.5, True, '3', None])
def test_bad_periods(period):
  with pytest.raises(ValueError, match=f'period={period!r}, must be an integer of at least 1'):
    vrl_jax.as_optax(_make('vrl_sgd'), period)


@pytest.mark.parametrize('first_period', [0, -3, 2.5])
def test_bad_first_periods(first_period):
  with pytest.raises(ValueError, match=f'first_period={first_period!r}, must be an integer of at least 1'):
    vrl_jax.as_optax(_make('vrl_sgd'), 4, first_period=first_period)


@pytest.mark.parametrize('period', [(), ((1, 2),), ((0, 2), (5,)), ((0, 2), (4, 3), (3, 1)), 'auto'])
def test_bad_stages(period):
  with pytest.raises(ValueError, match='period=.*pairs from step 0 on'):
    vrl_jax.as_optax(_make('vrl_sgd'), period)


def test_params_are_needed():
  tx = vrl_jax.as_optax(_make('vrl_sgd'), 4)
  params = quadratics.start(family.X0)
  with pytest.raises(ValueError, match='needs the parameters'):
    tx.update(params, tx.init(params))


# Inside optax's wrappers.


@every_kind
def test_inject_hyperparams_around_it(name):
  make = lambda learning_rate: vrl_jax.as_optax(_make(name, optax.sgd(learning_rate)), 3)
  tx = optax.inject_hyperparams(make)(learning_rate=0.03)

  def change(step, state):
    rate = jnp.where(step < 4, 0.03, 0.01).astype(state.hyperparams['learning_rate'].dtype)
    return state._replace(hyperparams=state.hyperparams | {'learning_rate': rate})

  models = _models(under_vmap(training_loop(tx, 9, change=change)))
  scheduled = _make(name, optax.sgd(lambda count: jnp.where(count < 4, 0.03, 0.01)))
  expected, _, _ = family.run(scheduled, [3] * 3)
  np.testing.assert_allclose(models, expected, atol=1e-12)


@every_kind
def test_inject_hyperparams_inside_it(name):
  inner = optax.inject_hyperparams(optax.sgd)(learning_rate=optax.exponential_decay(0.03, 3, 0.5))
  with jax.numpy_dtype_promotion('standard'):  # optax keeps the hyperparameters of float64 models in float32
    models = _models(under_vmap(training_loop(vrl_jax.as_optax(_make(name, inner), 3), 9)))
  scheduled = _make(name, optax.sgd(optax.exponential_decay(0.03, 3, 0.5)))
  expected, _, _ = family.run(scheduled, [3] * 3)
  np.testing.assert_allclose(models, expected, atol=1e-6)


@every_kind
def test_multi_steps(name):
  tx = vrl_jax.as_optax(_make(name, optax.sgd(0.03, momentum=0.5)), 3)
  accumulated = optax.MultiSteps(tx, 2).gradient_transformation()
  with jax.numpy_dtype_promotion('standard'):  # optax accumulates in float32
    twice = _models(under_vmap(training_loop(accumulated, 18)))
  # The models do not change between two updates, so both mini-batches have the same gradient.
  np.testing.assert_allclose(twice[1::2], _models(under_vmap(training_loop(tx, 9))), atol=1e-6)
  np.testing.assert_array_equal(twice[2::2], twice[1:-1:2])


_QUICK = ('vrl_sgd', 'd2')  # one that communicates in the branch, one that communicates at every step


@pytest.mark.parametrize(
  'name', [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in vrl_jax.ALGORITHMS]
)
@pytest.mark.parametrize('mapped', [under_pmap, under_shard_map])
def test_all_wrappers_at_once_on_eight_devices(name, mapped):
  make = lambda learning_rate: vrl_jax.as_optax(_make(name, optax.sgd(learning_rate)), 2)
  tx = optax.chain(optax.clip_by_global_norm(2.0), optax.inject_hyperparams(make)(learning_rate=0.03))
  accumulated = optax.MultiSteps(tx, 2).gradient_transformation()
  with jax.numpy_dtype_promotion('standard'):
    twice = _models(mapped(training_loop(accumulated, 8)))
  np.testing.assert_allclose(twice[1::2], _models(under_vmap(training_loop(tx, 4))), atol=1e-6)
