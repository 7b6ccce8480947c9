"""Seven mathematical facts about VRL-SGD, and the example in the paper's appendix."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, family_reference, quadratics
from support import numpy_reference as reference

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.placement import place_workers

pytestmark = pytest.mark.usefixtures('x64')

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
RATE = 0.03


def _run(algorithm, lengths, problem=PROBLEM, x0=X0):
  """[T, N, d] models, [T, N, d] consensus models, the last state."""
  return quadratics.run_vmapped(algorithm, problem, lengths, x0)


def _vrl(inner=None, **options):
  return vrl_jax.vrl_sgd(inner or optax.sgd(RATE), axis_name='w', **options)


@pytest.mark.parametrize('buffers', ['keep', 'mean', 'reset'])
def test_1_deltas_sum_to_zero_after_every_communication(buffers):
  algorithm = _vrl(optax.sgd(RATE, momentum=0.9), buffers=buffers)
  for rounds_ in range(1, 5):
    *_, state = quadratics.run_vmapped(algorithm, PROBLEM, [4] * rounds_, X0)
    delta = quadratics.to_flat(state.delta)
    assert np.abs(delta).max() > 0.1
    np.testing.assert_allclose(delta.sum(axis=0), 0, atol=1e-13)


def test_2_delta_is_the_weighted_mean_gradient_minus_its_mean_over_workers():
  decay, length = 0.2, 5
  inner = optax.chain(optax.add_decayed_weights(decay), optax.sgd(optax.linear_schedule(RATE, RATE / 4, 20)))
  models, _, state = _run(_vrl(inner), [length] * 3)

  steps = range(2 * length, 3 * length)
  gradients = np.stack([PROBLEM.gradients(models[t - 1]) + decay * models[t - 1] for t in steps])
  rates = [RATE * (1 - 0.75 * t / 20) for t in steps]
  by_worker = np.average(gradients, axis=0, weights=rates)
  expected = by_worker - by_worker.mean(axis=0)
  np.testing.assert_allclose(quadratics.to_flat(state.delta), expected, atol=1e-12)


def test_2_holds_where_the_period_and_the_learning_rate_change():
  """Δ_i is the weighted mean of g_i over its period, minus the mean over workers, through changes of k and γ."""
  algorithm = _vrl(family.falling_sgd())
  for lengths in ([2, 5], [2, 5, 3]):
    models, _, state = _run(algorithm, lengths)
    start = sum(lengths[:-1])
    before = np.concatenate([models[start - 1 : start], models[start:-1]])
    gradients = np.stack([PROBLEM.gradients(x) for x in before])
    weights = np.array([family.rate(t) for t in range(start, sum(lengths))])
    mean = np.tensordot(weights / weights.sum(), gradients, axes=1)
    np.testing.assert_allclose(quadratics.to_flat(state.delta), mean - mean.mean(axis=0), atol=1e-11)


def test_3_period_1_is_synchronous_sgd():
  vrl, _, _ = _run(_vrl(), [1] * 20)
  synchronous, _, _ = _run(vrl_jax.s_sgd(optax.sgd(RATE), axis_name='w'), [1] * 20)
  np.testing.assert_allclose(vrl.mean(axis=1), synchronous.mean(axis=1), atol=1e-13)


def test_4_with_identical_gradients_it_is_local_sgd():
  same = reference.Quadratics(np.full(8, 1.3), np.tile(PROBLEM.c[0], (8, 1)))
  vrl, _, state = _run(_vrl(), [4] * 5, same)
  local, _, _ = _run(vrl_jax.local_sgd(optax.sgd(RATE), axis_name='w'), [4] * 5, same)
  np.testing.assert_allclose(vrl, local, atol=1e-13)
  np.testing.assert_allclose(quadratics.to_flat(state.delta), 0, atol=1e-12)


def test_4_without_delta_it_is_local_sgd():
  local = vrl_jax.local_sgd(optax.sgd(RATE), axis_name='w')
  vrl = _vrl()

  def communicate(params, state):
    params, state = vrl.communicate(params, state)
    return params, state._replace(delta=jax.tree.map(lambda d: 0 * d, state.delta))

  without = vrl._replace(communicate=communicate)
  np.testing.assert_allclose(_run(without, [4] * 5)[0], _run(local, [4] * 5)[0], atol=1e-14)
  assert np.abs(_run(vrl, [4] * 5)[0] - _run(local, [4] * 5)[0]).max() > 1e-3


def test_5_it_is_scaffold_option_2_with_full_participation():
  lengths = [5] * 30
  scaffold, own, common = family_reference.scaffold(PROBLEM, lambda t: RATE, lengths, X0)
  vrl, _, state = _run(_vrl(), lengths)
  np.testing.assert_allclose(vrl[4::5], scaffold[4::5], atol=1e-14)
  np.testing.assert_allclose(quadratics.to_flat(state.delta), own - common, atol=1e-12)


def test_6_it_reaches_the_optimum_where_local_sgd_is_biased():
  length, count = 10, 150
  vrl, _, _ = _run(_vrl(), [length] * count)
  local, _, _ = _run(vrl_jax.local_sgd(optax.sgd(RATE), axis_name='w'), [length] * count)
  np.testing.assert_allclose(vrl[-1], np.tile(PROBLEM.optimum, (8, 1)), atol=1e-12)
  # A local period maps x to c_i + (1 - 2 rate a_i)^k (x - c_i); the fixed point of the mean is
  left = (1 - 2 * RATE * PROBLEM.a) ** length
  fixed_point = ((1 - left)[:, None] * PROBLEM.c).sum(axis=0) / (1 - left).sum()
  np.testing.assert_allclose(local[-1, 0], fixed_point, atol=1e-12)
  assert np.abs(fixed_point - PROBLEM.optimum).max() > 0.05


def test_7_with_warm_up_the_trajectory_does_not_depend_on_the_c():
  optimum = PROBLEM.optimum
  spread = PROBLEM.c - optimum  # their a-weighted sum is zero, also after scaling
  lengths = reference.lengths(60, 10, first_period=1)

  def means(b, lengths):
    models, _, _ = _run(_vrl(), lengths, PROBLEM._replace(c=optimum + b * spread))
    return models.mean(axis=1)

  for b in (0, 100):
    np.testing.assert_allclose(means(b, lengths), means(1, lengths), atol=1e-11)
  assert np.abs(means(100, [10] * 6) - means(1, [10] * 6)).max() > 1  # without warm-up it does


@pytest.mark.parametrize(
  ('name', 'first', 'distance'),
  [('s_sgd', 20, 5.1e-6), ('local_sgd', 20, 1.2e1), ('vrl_sgd', 20, 5.6e-5), ('vrl_sgd', 1, 3.1e-6)],
)
def test_appendix(name, first, distance):
  problem = reference.Quadratics(np.array([1.0, 2.0]), np.array([[-200.0], [100.0]]))  # b = 100
  lengths = reference.lengths(400, 20, first)
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.01), axis_name=AXES)
  engine = _appendix_engine(algorithm, problem)
  state = engine.init(np.ones(1))
  for length in lengths:
    state, (scalars, models) = engine.trace(state, quadratics.items(engine, length))
  final = float(np.abs(np.asarray(models.params)[0, 0, -1, 0]))
  variance = float(np.asarray(scalars['variance_among_workers'])[0, 0, -1])
  assert float(f'{final:.1e}') == pytest.approx(distance)
  assert variance < 1e-3 if name == 'vrl_sgd' else variance > 1e4


def _appendix_engine(algorithm, problem):
  placement = place_workers(2, 2)
  supply = quadratics.own_data(placement, problem._asdict())
  loss = lambda x, frozen, batch, rng: batch['a'] * jnp.sum(jnp.square(x - batch['c']))
  return Engine(algorithm, loss, placement, supply)
