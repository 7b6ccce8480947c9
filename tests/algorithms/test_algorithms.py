"""Tests of every algorithm in the registry; a new algorithm is picked up automatically."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from support import numpy_reference as reference
from support import quadratics

import vrl_jax
from vrl_jax.accounting.traffic import traffic
from vrl_jax.algorithms.core.axes import AXES

pytestmark = pytest.mark.usefixtures('x64')

PROBLEM = reference.heterogeneous()
SAME = reference.Quadratics(np.full(8, 1.3), np.tile(PROBLEM.c[0], (8, 1)))
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
RATE = 0.03
every_algorithm = pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)


@functools.cache
def _make(name, inner=None, axis_name='w'):
  return vrl_jax.ALGORITHMS[name](inner or optax.sgd(RATE, momentum=0.5), axis_name=axis_name)


def _shapes(tree):
  return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)


def _start(algorithm, dtype=np.float64):
  params = quadratics.replicate(quadratics.start(X0, dtype))
  return params, jax.vmap(algorithm.transform.init)(params), quadratics.batches(PROBLEM, dtype)


@every_algorithm
def test_the_transform_is_an_optax_transform(name):
  algorithm = _make(name)
  assert isinstance(algorithm, vrl_jax.Algorithm)
  assert isinstance(algorithm.transform, optax.GradientTransformationExtraArgs)


@every_algorithm
@pytest.mark.parametrize('function', ['init', 'update'])
def test_init_and_update_raise_and_point_to_the_transform(name, function):
  with pytest.raises(TypeError, match=rf'local step alone is .*algorithm\.transform\.{function}'):
    getattr(_make(name), function)


@every_algorithm
def test_the_default_axis(name):
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(RATE))
  params, state, _ = _start(algorithm)
  _, state = jax.vmap(algorithm.transform.update, axis_name=vrl_jax.AXIS)(params, state, params)
  jax.vmap(algorithm.communicate, axis_name=vrl_jax.AXIS)(params, state)


@every_algorithm
def test_a_state_from_an_eager_init_can_be_donated_with_the_params(name):
  algorithm = _make(name)
  params = {'kernel': jnp.ones((2, 3)), 'bias': jnp.ones(3)}
  state = algorithm.transform.init(params)
  donated = jax.tree.leaves((params, state))
  shift = jax.jit(lambda *trees: jax.tree.map(lambda x: x + 1, trees), donate_argnums=(0, 1))
  jax.block_until_ready(shift(params, state))  # XLA refuses to donate a buffer twice
  assert all(x.is_deleted() for x in donated)


@every_algorithm
@pytest.mark.parametrize('axis_type', [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize('set_mesh', [True, False])
def test_init_inside_shard_map(name, axis_type, set_mesh):
  """Both ways to name the mesh; the checks of `init` compute with values while the caller is traced over the mesh."""
  mesh = jax.make_mesh((4,), ('w',), axis_types=(axis_type,))
  algorithm, spec = _make(name), PartitionSpec('w')

  def period(params):
    state = algorithm.transform.init(params)
    updates, state = algorithm.transform.update(2 * params, state, params)
    return algorithm.communicate(params + updates, state)[0]

  params = jnp.linspace(0.0, 1.0, 12).reshape(4, 3)
  expected = jax.vmap(period, axis_name='w')(params)
  mapped = jax.shard_map(
    lambda x: period(x[0])[None], mesh=None if set_mesh else mesh, in_specs=spec, out_specs=spec, check_vma=False
  )
  with jax.set_mesh(mesh) if set_mesh else contextlib.nullcontext():
    result = jax.jit(mapped)(jax.device_put(params, NamedSharding(mesh, spec)))
  np.testing.assert_allclose(result, expected, rtol=1e-12)


@every_algorithm
@pytest.mark.parametrize('dtype', [np.float32, np.float64, jnp.bfloat16])
def test_params_and_states_keep_shapes_and_dtypes(name, dtype):
  algorithm = _make(name)
  step, communicate, consensus = quadratics.vmapped(algorithm)
  params, state, batch = _start(algorithm, dtype)
  stepped = jax.eval_shape(step, params, state, batch)
  assert _shapes(stepped) == _shapes((params, state))
  communicated = jax.eval_shape(communicate, *stepped)
  assert _shapes(communicated) == _shapes((params, state))
  assert _shapes(jax.eval_shape(consensus, *communicated)) == _shapes(params)

  def one_round(carry, _):
    carry, _ = jax.lax.scan(lambda carry, _: (step(*carry, batch), None), carry, length=3)
    return communicate(*carry), None

  jax.eval_shape(lambda *carry: jax.lax.scan(one_round, carry, length=4), params, state)  # scan checks the carry


@every_algorithm
def test_it_is_compiled_once(name):
  algorithm = _make(name, optax.sgd(optax.linear_schedule(RATE, 0.0, 100), momentum=0.5))
  traces = []

  def step(params, state, grads):
    traces.append('update')
    updates, state = algorithm.transform.update(grads, state, params)
    return optax.apply_updates(params, updates), state

  def communicate(params, state):
    traces.append('communicate')
    return algorithm.communicate(params, state)

  step, communicate = (jax.jit(jax.vmap(f, axis_name='w')) for f in (step, communicate))
  params, state, _ = _start(algorithm)
  grads = params
  for _ in range(3):
    for _ in range(2):
      params, state = step(params, state, grads)
    params, state = communicate(params, state)
  assert traces == ['update', 'communicate']


@every_algorithm
def test_extra_arguments_are_accepted_and_reach_the_optimizer(name):
  def update(grads, state, params=None, *, factor=1.0, **extra_args):
    return jax.tree.map(lambda g: -RATE * factor * g, grads), state

  inner = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
  algorithm = _make(name, inner)
  params, state, _ = _start(algorithm)

  def updates(**extra_args):
    step = lambda g, s, x: algorithm.transform.update(g, s, x, **extra_args)
    return quadratics.to_flat(jax.vmap(step, axis_name='w')(params, state, params)[0])

  np.testing.assert_allclose(updates(factor=4.0, value=1.0), 4 * updates(unknown=None), atol=1e-14)
  with_plain = _make(name, optax.sgd(RATE))
  state = jax.vmap(with_plain.transform.init)(params)
  step = lambda g, s, x: with_plain.transform.update(g, s, x, value=1.0)
  jax.vmap(step, axis_name='w')(params, state, params)


@every_algorithm
def test_workers_with_the_same_data_stay_equal(name):
  models, evaluated, _ = quadratics.run_vmapped(_make(name), SAME, [2] * 5, X0)
  np.testing.assert_allclose(models, np.broadcast_to(models[:, :1], models.shape), atol=1e-14)
  np.testing.assert_allclose(evaluated, np.broadcast_to(evaluated[:, :1], models.shape), atol=1e-14)


@every_algorithm
@pytest.mark.parametrize('period', [1, 5])
def test_converges_on_identical_quadratics(name, period):
  lengths = [period] * (600 // period)
  _, evaluated, _ = quadratics.run_vmapped(_make(name), SAME, lengths, X0)
  np.testing.assert_allclose(evaluated[-1], SAME.c, atol=1e-6)


@every_algorithm
def test_consensus_is_one_model_and_leaves_the_state_unchanged(name):
  algorithm = _make(name, axis_name=AXES)
  engine = quadratics.make_engine(algorithm, PROBLEM, devices=2)
  expected, _ = quadratics.run_engine(engine, [3] * 3, X0)

  state = engine.init(quadratics.start(X0))
  for _ in range(3):
    state, _ = engine.run(state, quadratics.items(engine, 3), 1)
    before = jax.tree.map(np.array, state)
    copies = quadratics.to_flat(engine.consensus(state))
    np.testing.assert_array_equal(copies, np.broadcast_to(copies[:1], copies.shape))
    again = quadratics.to_flat(engine.consensus(state))
    np.testing.assert_array_equal(again, copies)
    jax.tree.map(np.testing.assert_array_equal, before, state)
  np.testing.assert_array_equal(quadratics.worker_models(state), expected[-1])


@every_algorithm
def test_update_subtracts_the_correction(name):
  sends = traffic(_make(name, axis_name=AXES), quadratics.start(X0))
  if sends.per_step or sends.to_neighbours:
    pytest.skip('its update mixes the workers')
  algorithm = _make(name, optax.sgd(1.0))
  params, state, batch = _start(algorithm)
  step, communicate, _ = quadratics.vmapped(algorithm)
  for _ in range(3):
    params, state = step(params, state, batch)
  params, state = communicate(params, state)
  grads = quadratics.to_tree(jnp.asarray(PROBLEM.gradients(quadratics.to_flat(params))))
  updates, _ = jax.vmap(algorithm.transform.update, axis_name='w')(grads, state, params)
  correction = algorithm.correction(state)
  correction = 0 if correction is None else quadratics.to_flat(correction)
  np.testing.assert_allclose(-quadratics.to_flat(updates), quadratics.to_flat(grads) - correction, atol=1e-10)


@every_algorithm
def test_the_same_trajectory_on_any_number_of_devices(name):
  lengths = [3, 3]
  vmapped, _, _ = quadratics.run_vmapped(_make(name), PROBLEM, lengths, X0)
  ends = np.cumsum(lengths) - 1
  for devices in (8, 4, 2, 1):
    engine = quadratics.make_engine(_make(name, axis_name=AXES), PROBLEM, devices=devices)
    models, _ = quadratics.run_engine(engine, lengths, X0)
    np.testing.assert_allclose(models, vmapped[ends], atol=1e-12)


@every_algorithm
def test_precede_acts_on_the_raw_gradient(name):
  doubled = vrl_jax.precede(optax.scale(2.0), _make(name))
  twice = PROBLEM._replace(a=2 * PROBLEM.a)
  models, evaluated, _ = quadratics.run_vmapped(doubled, PROBLEM, [3] * 4, X0)
  expected, expected_evaluated, _ = quadratics.run_vmapped(_make(name), twice, [3] * 4, X0)
  np.testing.assert_allclose(models, expected, atol=1e-13)
  np.testing.assert_allclose(evaluated, expected_evaluated, atol=1e-13)


@every_algorithm
def test_precede_keeps_the_transforms_state_and_passes_arguments(name):
  seen = []

  def update(grads, state, params=None, **extra_args):
    seen.append(sorted(extra_args))
    return grads, state + 1

  counter = optax.GradientTransformationExtraArgs(lambda params: jnp.zeros([], jnp.int32), update)
  algorithm = vrl_jax.precede(counter, _make(name))
  params, state, _ = _start(algorithm)
  step = lambda g, s, x: algorithm.transform.update(g, s, x, value=1.0)
  _, state = jax.vmap(step, axis_name='w')(params, state, params)
  _, state = jax.vmap(algorithm.communicate, axis_name='w')(params, state)
  np.testing.assert_array_equal(state[0], np.ones(8))
  assert seen == [['value']]


COMBINATORS = {
  'chain': lambda algorithm: optax.chain(optax.clip(1.0), algorithm),
  'chain alone': lambda algorithm: optax.chain(algorithm),
  'named_chain': lambda algorithm: optax.named_chain(('only', algorithm)),
  'MultiSteps': lambda algorithm: optax.MultiSteps(algorithm, 2),
  'masked': lambda algorithm: optax.masked(algorithm, True),
  'multi_transform': lambda algorithm: optax.multi_transform({'all': algorithm}, 'all'),
  'apply_if_finite': lambda algorithm: optax.apply_if_finite(algorithm, 3),
  'lookahead': lambda algorithm: optax.lookahead(algorithm, 5, 0.5),
  'flatten': lambda algorithm: optax.flatten(algorithm),
  'with_extra_args_support': lambda algorithm: optax.with_extra_args_support(algorithm),
  'schedule_free': lambda algorithm: optax.contrib.schedule_free(algorithm, 0.1),
}


@every_algorithm
@pytest.mark.parametrize('combinator', COMBINATORS)
def test_optax_combinators_reject_an_algorithm(name, combinator):
  algorithm = _make(name)
  params = jnp.ones(3)
  with pytest.raises(TypeError, match='would never communicate.*as_optax.*precede'):
    COMBINATORS[combinator](algorithm).init(params)


@every_algorithm
def test_an_algorithm_is_rejected_as_inner_optimizer(name):
  with pytest.raises(TypeError, match='would never communicate'):
    _make(name, inner=_make(name))
