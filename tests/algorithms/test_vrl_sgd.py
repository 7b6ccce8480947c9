"""VRL-SGD's divisor and Δ: schedules, hyperparameters, masks, extra arguments, dtypes, momentum."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, quadratics
from support import numpy_reference as reference

import vrl_jax

pytestmark = pytest.mark.usefixtures('x64')

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
RATE = 0.03
MATRIX = slice(0, 4)  # the coordinates of the only leaf of rank 2


def _vrl(inner, **options):
  return vrl_jax.vrl_sgd(inner, axis_name='w', **options)


def _run(algorithm, lengths):
  return quadratics.run_vmapped(algorithm, PROBLEM, lengths, X0)


def _by_ndim(matrix, other):
  return lambda params: jax.tree.map(lambda x: matrix if x.ndim > 1 else other, params)


def _expected(rate, lengths, **options):
  return np.stack([s.x for s in reference.run('vrl_sgd', PROBLEM, reference.SGD(rate, **options), lengths, X0)])


# Schedules.


def test_a_zero_response_at_the_start_leaves_delta_at_zero():
  rate = lambda t: 0.0 if t < 3 else RATE
  algorithm = _vrl(optax.sgd(lambda count: jnp.where(count < 3, 0.0, RATE)))
  models, _, state = _run(algorithm, [3])
  np.testing.assert_array_equal(quadratics.to_flat(state.delta), 0)
  np.testing.assert_array_equal(models[-1], np.tile(X0, (8, 1)))
  models, _, state = _run(algorithm, [3, 3, 3])
  np.testing.assert_allclose(models, _expected(rate, [3, 3, 3]), atol=1e-13)
  assert np.isfinite(quadratics.to_flat(state.delta)).all()


def test_a_zero_response_in_mid_run_leaves_delta_unchanged():
  algorithm = _vrl(optax.sgd(lambda count: jnp.where((count >= 3) & (count < 6), 0.0, RATE)))
  before = quadratics.to_flat(_run(algorithm, [3])[2].delta)
  after = quadratics.to_flat(_run(algorithm, [3, 3])[2].delta)
  assert np.abs(before).max() > 0.1
  np.testing.assert_array_equal(after, before)


def test_a_zero_response_passes_debug_nans():
  with jax.debug_nans(True):
    _run(_vrl(optax.sgd(lambda count: jnp.where(count < 2, 0.0, RATE))), [2, 2])


# Hyperparameters changed in the state.


def _with_rate(state, rate):
  hyperparams = state.inner.hyperparams
  new = hyperparams | {'learning_rate': jnp.full_like(hyperparams['learning_rate'], rate)}
  return state._replace(inner=state.inner._replace(hyperparams=new))


@pytest.mark.parametrize('momentum', [0.0, 0.8])
def test_a_changed_learning_rate_reaches_the_probe(momentum):
  inner = optax.inject_hyperparams(optax.sgd)(RATE, momentum=momentum)
  algorithm = _vrl(inner)
  step, communicate, _ = quadratics.vmapped(algorithm)
  params = quadratics.replicate(quadratics.start(X0))
  state = jax.vmap(algorithm.transform.init)(params)
  batch = quadratics.batches(PROBLEM)
  for t in range(12):
    if t == 6:  # in the middle of the second period of 4
      state = _with_rate(state, RATE / 5)
    params, state = step(params, state, batch)
    if t % 4 == 3:
      params, state = communicate(params, state)
  rate = lambda t: RATE if t < 6 else RATE / 5
  expected = reference.run('vrl_sgd', PROBLEM, reference.SGD(rate, momentum=momentum), [4] * 3, X0)[-1]
  np.testing.assert_allclose(quadratics.to_flat(params), expected.x, atol=1e-12)
  np.testing.assert_allclose(quadratics.to_flat(state.delta), expected.new_delta, atol=1e-12)


# Masks and labels that depend on ndim.


def test_weight_decay_masked_by_ndim():
  inner = optax.chain(optax.add_decayed_weights(0.2, mask=_by_ndim(True, False)), optax.sgd(RATE, momentum=0.8))
  models, _, _ = _run(_vrl(inner), [3] * 4)
  decayed = _expected(lambda t: RATE, [3] * 4, momentum=0.8, weight_decay=0.2)
  plain = _expected(lambda t: RATE, [3] * 4, momentum=0.8)
  np.testing.assert_allclose(models[..., MATRIX], decayed[..., MATRIX], atol=1e-12)
  np.testing.assert_allclose(models[..., 4:], plain[..., 4:], atol=1e-12)


@pytest.mark.parametrize('buffers', ['keep', 'mean', 'reset'])
def test_labels_by_ndim(buffers):
  parts = {'matrix': optax.sgd(RATE, momentum=0.8), 'other': optax.sgd(RATE / 3)}
  algorithm = _vrl(optax.multi_transform(parts, _by_ndim('matrix', 'other')), buffers=buffers)
  models, _, state = _run(algorithm, [3] * 4)
  inner = reference.SGD(lambda t: RATE, momentum=0.8)
  matrix = np.stack([s.x for s in reference.run('vrl_sgd', PROBLEM, inner, [3] * 4, X0, buffers=buffers)])
  other = _expected(lambda t: RATE / 3, [3] * 4)
  np.testing.assert_allclose(models[..., MATRIX], matrix[..., MATRIX], atol=1e-12)
  np.testing.assert_allclose(models[..., 4:], other[..., 4:], atol=1e-12)
  np.testing.assert_allclose(quadratics.to_flat(state.delta).sum(axis=0), 0, atol=1e-12)


def test_masked_momentum_and_frozen_leaves():
  inner = optax.chain(
    optax.masked(optax.trace(0.8), _by_ndim(True, False)),
    optax.masked(optax.set_to_zero(), _by_ndim(False, True)),
    optax.scale(-RATE),
  )
  models, _, state = _run(_vrl(inner), [3] * 4)
  expected = _expected(lambda t: RATE, [3] * 4, momentum=0.8)
  np.testing.assert_allclose(models[..., MATRIX], expected[..., MATRIX], atol=1e-12)
  np.testing.assert_array_equal(models[..., 4:], np.tile(X0[4:], (12, 8, 1)))
  np.testing.assert_array_equal(quadratics.to_flat(state.delta)[:, 4:], 0)


# Extra arguments.


def _scaled_by_argument():
  def update(grads, state, params=None, *, factor=1.0, **extra_args):
    return jax.tree.map(lambda g: -RATE * factor * g, grads), state

  return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def test_extra_arguments_reach_the_optimizer_and_the_probe():
  algorithm = _vrl(_scaled_by_argument())
  x, c = jnp.zeros((8, 7)), jnp.asarray(PROBLEM.c)
  state = jax.vmap(algorithm.transform.init)(x)
  for factor in (1.0, 4.0, 0.5):
    step = functools.partial(algorithm.transform.update, factor=factor, unknown=1)
    updates, state = jax.vmap(step)(c, state, x)
    x = x + updates
  np.testing.assert_allclose(x, -5.5 * RATE * c, rtol=1e-13)
  np.testing.assert_allclose(state.response, np.full((8, 1), 5.5 * RATE), rtol=1e-13)
  _, state = jax.vmap(algorithm.communicate, axis_name='w')(x, state)
  np.testing.assert_allclose(state.delta, c - c.mean(axis=0, keepdims=True), atol=1e-13)


# Dtypes.


def _one_period(dtype, length=5, inner=None, buffers='keep'):
  algorithm = _vrl(inner or optax.sgd(0.1), buffers=buffers)
  params = {'w': jnp.zeros((8, 3, 2), dtype), 'b': jnp.ones((8, 2), dtype)}
  grads = jax.tree.map(lambda x: jax.random.normal(jax.random.key(0), x.shape, jnp.float32).astype(dtype), params)

  @functools.partial(jax.vmap, axis_name='w')
  def period(params, grads):
    state = algorithm.transform.init(params)
    for _ in range(length):
      updates, state = algorithm.transform.update(grads, state, params)
      params = optax.apply_updates(params, updates)
    return algorithm.communicate(params, state)

  return grads, *jax.jit(period)(params, grads)


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float16])
def test_narrow_params_have_a_float32_delta_that_sums_to_zero(dtype):
  grads, params, state = _one_period(dtype)
  assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
  assert {x.dtype for x in jax.tree.leaves((state.delta, state.response))} == {jnp.dtype(jnp.float32)}
  for delta, grad in zip(jax.tree.leaves(state.delta), jax.tree.leaves(grads)):
    assert float(jnp.abs(delta).max()) > 0.1
    np.testing.assert_allclose(delta.sum(axis=0), 0, atol=1e-5)  # it would be 1e-2 in the narrow type
    exact = np.asarray(grad, np.float64) - np.asarray(grad, np.float64).mean(axis=0)
    np.testing.assert_allclose(delta, exact, atol=0.05)


@pytest.mark.parametrize('buffers', ['keep', 'mean', 'reset'])
def test_narrow_momentum_keeps_its_dtype(buffers):
  inner = optax.sgd(0.1, momentum=0.9)
  _, params, state = _one_period(jnp.bfloat16, inner=inner, buffers=buffers)
  assert {x.dtype for x in jax.tree.leaves((params, state.inner))} == {jnp.dtype(jnp.bfloat16)}


def test_injected_hyperparameters_of_narrow_params_keep_their_dtype():
  algorithm = _vrl(optax.inject_hyperparams(optax.sgd)(0.1, momentum=0.9), buffers='reset')
  params = jnp.ones((8, 3), jnp.bfloat16)
  state = jax.vmap(algorithm.transform.init)(params)
  _, new = jax.vmap(algorithm.transform.update)(params, state, params)
  _, last = jax.vmap(algorithm.communicate, axis_name='w')(params, new)
  for other in (new, last):
    jax.tree.map(lambda a, b: np.testing.assert_equal((a.shape, a.dtype), (b.shape, b.dtype)), state, other)


def test_float64_stays_float64():
  _, params, state = _one_period(jnp.float64)
  assert {x.dtype for x in jax.tree.leaves((params, state))} == {jnp.dtype(jnp.float64)}


def test_float32_stays_float32_in_x64_mode():
  _, params, state = _one_period(jnp.float32)
  assert {x.dtype for x in jax.tree.leaves((params, state))} == {jnp.dtype(jnp.float32)}


# Momentum.


@pytest.mark.parametrize('nesterov', [False, True])
@pytest.mark.parametrize('buffers', ['keep', 'mean', 'reset'])
def test_momentum_reaches_the_optimum(buffers, nesterov):
  inner = optax.sgd(0.003, momentum=0.9, nesterov=nesterov)
  models, _, _ = _run(_vrl(inner, buffers=buffers), [20] * 60)
  np.testing.assert_allclose(models[-1], np.tile(PROBLEM.optimum, (8, 1)), atol=1e-9)


def _before_and_after_a_communication(algorithm):
  """The state after five steps, and after the communication that follows."""
  step, communicate, _ = quadratics.vmapped(algorithm)
  params = quadratics.replicate(quadratics.start(X0))
  state = jax.vmap(algorithm.transform.init)(params)
  for _ in range(5):
    params, state = step(params, state, quadratics.batches(PROBLEM))
  _, new = communicate(params, state)
  return state, new


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd'])
@pytest.mark.parametrize('buffers', ['mean', 'reset'])
def test_a_communication_changes_the_momentum_but_not_the_counters(name, buffers):
  inner = optax.sgd(optax.linear_schedule(RATE, 0.0, 100), momentum=0.8)
  algorithm = vrl_jax.ALGORITHMS[name](inner, buffers=buffers, axis_name='w')
  state, new = _before_and_after_a_communication(algorithm)

  old_inner, new_inner = (s if name == 'local_sgd' else s.inner for s in (state, new))
  np.testing.assert_array_equal(optax.tree.get(new_inner, 'count'), np.full(8, 5))
  old_trace, new_trace = (quadratics.to_flat(optax.tree.get(s, 'trace')) for s in (old_inner, new_inner))
  expected = np.tile(old_trace.mean(axis=0), (8, 1)) if buffers == 'mean' else np.zeros_like(old_trace)
  np.testing.assert_allclose(new_trace, expected, atol=1e-14)
  if name == 'vrl_sgd':
    np.testing.assert_array_equal(optax.tree.get(new.probe, 'count'), np.full(8, 5))
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(optax.tree.get(new.probe, 'trace')))


def test_keep_leaves_the_momentum_and_the_probe_unchanged():
  state, new = _before_and_after_a_communication(_vrl(optax.sgd(RATE, momentum=0.8)))
  for old, kept in zip(jax.tree.leaves((state.inner, state.probe)), jax.tree.leaves((new.inner, new.probe))):
    np.testing.assert_array_equal(old, kept)
  assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(new.response))


@pytest.mark.parametrize('factory', [vrl_jax.local_sgd, vrl_jax.vrl_sgd])
def test_unknown_buffers(factory):
  with pytest.raises(ValueError, match="buffers='average', must be one of keep, mean, reset"):
    factory(optax.sgd(0.1), buffers='average')


# Leaves without a Δ.


@pytest.mark.parametrize(
  'corrected',
  [
    {'layer': {'matrix': True, 'vector': False}, 'scalar': True},
    lambda params: {'layer': {'matrix': True, 'vector': False}, 'scalar': True},
  ],
)
def test_uncorrected_leaves_follow_local_sgd(corrected):
  inner = lambda: optax.sgd(0.03, momentum=0.5)
  models, _, state = _run(_vrl(inner(), corrected=corrected), family.LENGTHS)
  local, _, _ = _run(vrl_jax.local_sgd(inner(), axis_name='w'), family.LENGTHS)
  vrl, _, _ = _run(_vrl(inner()), family.LENGTHS)
  vector = slice(4, 6)  # the coordinates of the quadratic do not interact
  np.testing.assert_allclose(models[..., vector], local[..., vector], atol=1e-13)
  np.testing.assert_allclose(np.delete(models, vector, -1), np.delete(vrl, vector, -1), atol=1e-13)
  np.testing.assert_array_equal(state.delta['layer']['vector'], 0)
  assert np.abs(state.delta['layer']['matrix']).min() > 0


def test_a_mask_may_be_a_prefix():
  algorithm = _vrl(optax.sgd(0.03), corrected={'layer': False, 'scalar': True})
  _, _, state = _run(algorithm, [3])
  np.testing.assert_array_equal(jnp.concatenate([x.ravel() for x in jax.tree.leaves(state.delta['layer'])]), 0)
  assert np.abs(state.delta['scalar']).min() > 0
