"""An algorithm as a plain optax transform: the engine's trajectory in anybody's loop."""

import functools

import jax
import numpy as np
import numpy_reference as reference
import optax
import pytest
import quadratics
from jax.sharding import PartitionSpec as P

import vrl_jax
from vrl_jax import rounds

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
STEPS = 11
every_algorithm = pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def _inner():
  return optax.sgd(optax.exponential_decay(0.03, 10, 0.5), momentum=0.5)


def _make(name, axis_name='w'):
  return vrl_jax.ALGORITHMS[name](_inner(), axis_name=axis_name)


def _worker(tx):
  """`(params, batch) -> [T, ...] models`: one worker's whole loop, the state made inside."""

  def loop(params, batch):
    def step(carry, _):
      params, state = carry
      grads = jax.grad(quadratics.loss)(params, (), batch, None)
      updates, state = tx.update(grads, state, params)
      params = optax.apply_updates(params, updates)
      return (params, state), params

    return jax.lax.scan(step, (params, tx.init(params)), length=STEPS)[1]

  return loop


def _under_vmap(tx):
  return jax.jit(jax.vmap(_worker(tx), axis_name='w'))


def _under_pmap(tx):
  return jax.pmap(_worker(tx), axis_name='w')


def _under_shard_map(tx):
  def device(params, batch):
    one = jax.tree.map(lambda x: x[0], (params, batch))
    return jax.tree.map(lambda x: x[None], _worker(tx)(*one))

  mesh = jax.make_mesh((8,), ('w',), axis_types=(jax.sharding.AxisType.Auto,))
  return jax.jit(jax.shard_map(device, mesh=mesh, in_specs=P('w'), out_specs=P('w'), check_vma=True))


def _models(run):
  """[T, N, 7]."""
  models = run(quadratics.replicate(quadratics.start(X0)), quadratics.batches(PROBLEM))
  return np.swapaxes(quadratics.to_flat(models, lead=2), 0, 1)


@functools.cache
def _engine_models(name, period, first_period):
  lengths = reference.lengths(STEPS, period, first_period)
  if STEPS not in np.cumsum(reference.lengths(STEPS - 1 + period, period, first_period)):
    lengths = lengths[:-1]  # as_optax does not know that the run ends, so it leaves the last partial period open
  engine = quadratics.make_engine(_make(name, rounds.AXES), PROBLEM, devices=2)
  models, _ = quadratics.run_engine(engine, lengths, X0)
  return np.cumsum(lengths) - 1, models


@every_algorithm
@pytest.mark.parametrize('mapped', [_under_vmap, _under_shard_map])
def test_the_engines_trajectory(name, mapped):
  ends, expected = _engine_models(name, 4, None)
  models = _models(mapped(vrl_jax.as_optax(_make(name), 4)))
  np.testing.assert_allclose(models[ends], expected, atol=1e-13)


@pytest.mark.parametrize(('period', 'first_period'), [(1, None), (4, 1), (3, 5)])
@pytest.mark.parametrize('mapped', [_under_vmap, _under_pmap])
def test_other_periods(mapped, period, first_period):
  ends, expected = _engine_models('vrl_sgd', period, first_period)
  models = _models(mapped(vrl_jax.as_optax(_make('vrl_sgd'), period, first_period)))
  np.testing.assert_allclose(models[ends], expected, atol=1e-13)


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd'])
def test_communicates_when_due_and_only_then(name):
  models = _models(_under_vmap(vrl_jax.as_optax(_make(name), 4, first_period=2)))
  agree = np.ptp(models, axis=1).max(axis=1) < 1e-12
  assert np.flatnonzero(agree).tolist() == [1, 5, 9]


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd'])
@pytest.mark.parametrize('mapped', [_under_vmap, _under_pmap, _under_shard_map])
def test_last_in_a_chain(name, mapped):
  clip = optax.clip_by_global_norm(1.0)
  chained = _models(mapped(optax.chain(clip, vrl_jax.as_optax(_make(name), 4))))
  preceded = vrl_jax.precede(clip, _make(name))
  functions = quadratics.by_hand(preceded)
  expected, _, _ = quadratics.run_by_hand(functions, preceded, PROBLEM, [4, 4], X0)
  np.testing.assert_allclose(chained[:8], expected, atol=1e-13)
  unclipped = _models(mapped(vrl_jax.as_optax(_make(name), 4)))
  assert np.abs(chained - unclipped).max() > 1e-2


@every_algorithm
def test_extra_arguments_pass(name):
  tx = vrl_jax.as_optax(_make(name), 2)
  assert isinstance(tx, optax.GradientTransformationExtraArgs)
  params = quadratics.replicate(quadratics.start(X0))
  state = jax.vmap(tx.init)(params)
  step = lambda g, s, x: tx.update(g, s, x, value=1.0)
  _, new = jax.eval_shape(jax.vmap(step, axis_name='w'), params, state, params)
  jax.tree.map(lambda a, b: np.testing.assert_equal((a.shape, a.dtype), (b.shape, b.dtype)), state, new)


@pytest.mark.parametrize('period', [0, -3, 2.5, True, '3', None])
def test_bad_periods(period):
  with pytest.raises(ValueError, match=f'period={period!r}, must be a whole number of at least 1'):
    vrl_jax.as_optax(_make('vrl_sgd'), period)


@pytest.mark.parametrize('first_period', [0, -3, 2.5])
def test_bad_first_periods(first_period):
  with pytest.raises(ValueError, match=f'first_period={first_period!r}, must be'):
    vrl_jax.as_optax(_make('vrl_sgd'), 4, first_period=first_period)


def test_params_are_needed():
  tx = vrl_jax.as_optax(_make('vrl_sgd'), 4)
  params = quadratics.start(X0)
  with pytest.raises(ValueError, match='needs the parameters'):
    tx.update(params, tx.init(params))
