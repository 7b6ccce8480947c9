"""as_optax inside optax's own wrappers, its stages, the agreed skip, and leaves without a Δ."""

import family
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import quadratics
from jax.sharding import PartitionSpec as P

import vrl_jax
from vrl_jax.periods import make_periods, post_local, stagewise

every_algorithm = pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
STEPS = 9


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def _loop(tx, steps, change=lambda step, state: state):
  """`(params, batch) -> [T, ...] models` of one worker."""

  def loop(params, batch):
    def step(carry, number):
      params, state = carry
      state = change(number, state)
      grads = jax.grad(quadratics.loss)(params, (), batch, None)
      updates, state = tx.update(grads, state, params)
      params = optax.apply_updates(params, updates)
      return (params, state), params

    return jax.lax.scan(step, (params, tx.init(params)), jnp.arange(steps))[1]

  return loop


def _under_vmap(loop):
  return jax.jit(jax.vmap(loop, axis_name='w'))


def _under_pmap(loop):
  return jax.pmap(loop, axis_name='w')


def _under_shard_map(loop):
  def device(params, batch):
    one = jax.tree.map(lambda x: x[0], (params, batch))
    return jax.tree.map(lambda x: x[None], loop(*one))

  mesh = jax.make_mesh((8,), ('w',), axis_types=(jax.sharding.AxisType.Auto,))
  return jax.jit(jax.shard_map(device, mesh=mesh, in_specs=P('w'), out_specs=P('w'), check_vma=True))


EVERYWHERE = pytest.mark.parametrize('mapped', [_under_vmap, _under_pmap, _under_shard_map])


def _models(run):
  """[T, N, 7]."""
  models = run(quadratics.replicate(quadratics.start(family.X0)), quadratics.batches(family.PROBLEM))
  return np.swapaxes(quadratics.to_flat(models, lead=2), 0, 1)


def _make(name, inner):
  return vrl_jax.ALGORITHMS[name](inner, axis_name='w')


@every_algorithm
def test_inject_hyperparams_around_it(name):
  make = lambda learning_rate: vrl_jax.as_optax(_make(name, optax.sgd(learning_rate)), 3)
  tx = optax.inject_hyperparams(make)(learning_rate=0.03)

  def change(step, state):
    rate = jnp.where(step < 4, 0.03, 0.01).astype(state.hyperparams['learning_rate'].dtype)
    return state._replace(hyperparams=state.hyperparams | {'learning_rate': rate})

  models = _models(_under_vmap(_loop(tx, STEPS, change)))
  scheduled = _make(name, optax.sgd(lambda count: jnp.where(count < 4, 0.03, 0.01)))
  expected, _, _ = family.by_hand(scheduled, [3] * 3)
  np.testing.assert_allclose(models, expected, atol=1e-12)


@every_algorithm
def test_inject_hyperparams_inside_it(name):
  inner = optax.inject_hyperparams(optax.sgd)(learning_rate=optax.exponential_decay(0.03, 3, 0.5))
  with jax.numpy_dtype_promotion('standard'):  # optax keeps the hyperparameters of float64 models in float32
    models = _models(_under_vmap(_loop(vrl_jax.as_optax(_make(name, inner), 3), STEPS)))
  scheduled = _make(name, optax.sgd(optax.exponential_decay(0.03, 3, 0.5)))
  expected, _, _ = family.by_hand(scheduled, [3] * 3)
  np.testing.assert_allclose(models, expected, atol=1e-6)


@every_algorithm
def test_multi_steps(name):
  tx = vrl_jax.as_optax(_make(name, optax.sgd(0.03, momentum=0.5)), 3)
  accumulated = optax.MultiSteps(tx, 2).gradient_transformation()
  with jax.numpy_dtype_promotion('standard'):  # optax accumulates in float32
    twice = _models(_under_vmap(_loop(accumulated, 2 * STEPS)))
  # Between two updates the models stay, so both mini-batches have the same gradient.
  np.testing.assert_allclose(twice[1::2], _models(_under_vmap(_loop(tx, STEPS))), atol=1e-6)
  np.testing.assert_array_equal(twice[2::2], twice[1:-1:2])


_QUICK = ('vrl_sgd', 'd2')  # one that communicates in the branch, one that does at every step


@pytest.mark.parametrize(
  'name', [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in vrl_jax.ALGORITHMS]
)
@pytest.mark.parametrize('mapped', [_under_pmap, _under_shard_map])
def test_all_wrappers_at_once_on_eight_devices(name, mapped):
  make = lambda learning_rate: vrl_jax.as_optax(_make(name, optax.sgd(learning_rate)), 2)
  tx = optax.chain(optax.clip_by_global_norm(2.0), optax.inject_hyperparams(make)(learning_rate=0.03))
  accumulated = optax.MultiSteps(tx, 2).gradient_transformation()
  with jax.numpy_dtype_promotion('standard'):
    twice = _models(mapped(_loop(accumulated, 8)))
  np.testing.assert_allclose(twice[1::2], _models(_under_vmap(_loop(tx, 4))), atol=1e-6)


# Stages.


@pytest.mark.parametrize(
  ('stages', 'first'),
  [(post_local(4, 3), None), (stagewise(1, (3, 9)), None), (((0, 3), (2, 1), (4, 5)), 2), ([[0, 2], [4, 3]], 1)],
)
def test_stages_have_the_engines_rounds(stages, first):
  algorithm = _make('vrl_sgd', family.falling_sgd())
  models = _models(_under_vmap(_loop(vrl_jax.as_optax(algorithm, stages, first), 20)))
  lengths = [length for _, length in make_periods(20, 1, first, stages).rounds()]
  expected, _, _ = family.by_hand(algorithm, lengths)
  last = 20 - lengths[-1]  # as_optax does not know that the run ends
  np.testing.assert_allclose(models[:last], expected[:last], atol=1e-12)


def test_delta_is_exact_where_the_period_changes():
  """Fact 2 through a change of k and γ: Δ_i is the mean of g_i over its period, minus that of all workers."""
  a, c = family.PROBLEM
  algorithm = _make('vrl_sgd', family.falling_sgd())
  for lengths in ([2, 5], [2, 5, 3]):
    models, _, state = family.by_hand(algorithm, lengths)
    start = sum(lengths[:-1])
    before = np.concatenate([models[start - 1 : start], models[start:-1]])
    gradients = 2 * a[:, None] * (before - c)
    weights = np.array([family.rate(t) for t in range(start, sum(lengths))])
    mean = np.tensordot(weights / weights.sum(), gradients, axes=1)
    np.testing.assert_allclose(quadratics.to_flat(state.delta), mean - mean.mean(axis=0), atol=1e-11)


@pytest.mark.parametrize('period', [(), ((1, 2),), ((0, 2), (5,)), ((0, 2), (4, 3), (3, 1)), 'auto'])
def test_bad_stages(period):
  with pytest.raises(ValueError, match='period=.*pairs from step 0 on'):
    vrl_jax.as_optax(_make('vrl_sgd', optax.sgd(0.1)), period)


# Steps that are not finite.


@EVERYWHERE
@pytest.mark.parametrize('name', ['vrl_sgd', 'local_sgd'])
def test_one_bad_gradient_is_skipped_by_all(name, mapped):
  """Worker 2's gradient is a NaN at step 3 and an infinity at step 5: as if these steps were not there."""

  def loop(params, batch):
    tx = vrl_jax.skip_if_any_not_finite(vrl_jax.as_optax(_make(name, optax.sgd(0.03, momentum=0.5)), 3), axis_name='w')

    def step(carry, number):
      params, state = carry
      grads = jax.grad(quadratics.loss)(params, (), batch, None)
      bad = jnp.where(number == 3, jnp.nan, jnp.where(number == 5, jnp.inf, 0.0))
      bad = jnp.where(jax.lax.axis_index('w') == 2, bad, 0.0)
      grads = grads | {'scalar': grads['scalar'] + bad}
      updates, state = tx.update(grads, state, params)
      params = optax.apply_updates(params, updates)
      return (params, state), params

    return jax.lax.scan(step, (params, tx.init(params)), jnp.arange(STEPS + 2))[1]

  models = _models(mapped(loop))
  np.testing.assert_array_equal(models[3], models[2])
  np.testing.assert_array_equal(models[5], models[4])
  expected, _, _ = family.by_hand(_make(name, optax.sgd(0.03, momentum=0.5)), [3] * 3)
  np.testing.assert_allclose(np.delete(models, [3, 5], axis=0), expected, atol=1e-12)


def test_apply_if_finite_is_unsafe():
  """What the documentation warns of: a worker that skips alone falls out of step."""
  tx = optax.apply_if_finite(vrl_jax.as_optax(_make('vrl_sgd', optax.sgd(0.1)), 2), 5)
  params = jnp.zeros(2)
  state = jax.vmap(tx.init)(params)
  _, state = jax.vmap(tx.update, axis_name='w')(jnp.array([1.0, jnp.nan]), state, params)
  assert state.inner_state.step.tolist() == [1, 0]


# Leaves that are averaged but not corrected.


@pytest.mark.parametrize(
  'corrected',
  [
    {'layer': {'matrix': True, 'vector': False}, 'scalar': True},
    lambda params: {'layer': {'matrix': True, 'vector': False}, 'scalar': True},
  ],
)
def test_uncorrected_leaves_follow_local_sgd(corrected):
  inner = lambda: optax.sgd(0.03, momentum=0.5)
  models, _, state = family.by_hand(vrl_jax.vrl_sgd(inner(), corrected=corrected, axis_name='w'))
  local, _, _ = family.by_hand(_make('local_sgd', inner()))
  vrl, _, _ = family.by_hand(_make('vrl_sgd', inner()))
  vector = slice(4, 6)  # the quadratic has no terms between coordinates
  np.testing.assert_allclose(models[..., vector], local[..., vector], atol=1e-13)
  np.testing.assert_allclose(np.delete(models, vector, -1), np.delete(vrl, vector, -1), atol=1e-13)
  np.testing.assert_array_equal(state.delta['layer']['vector'], 0)
  assert np.abs(state.delta['layer']['matrix']).min() > 0


def test_a_mask_may_be_a_prefix():
  algorithm = vrl_jax.vrl_sgd(optax.sgd(0.03), corrected={'layer': False, 'scalar': True}, axis_name='w')
  _, _, state = family.by_hand(algorithm, [3])
  np.testing.assert_array_equal(jnp.concatenate([x.ravel() for x in jax.tree.leaves(state.delta['layer'])]), 0)
  assert np.abs(state.delta['scalar']).min() > 0
