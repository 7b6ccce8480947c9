"""The seven facts of the mathematics, and the paper's appendix."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_reference as reference
import optax
import pytest
import quadratics

import vrl_jax
from vrl_jax import rounds
from vrl_jax.arrangement import arrange

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
RATE = 0.03


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def _run(algorithm, lengths, problem=PROBLEM, x0=X0):
  """[T, N, d] models, [T, N, d] consensus models, the last state."""
  return quadratics.run_by_hand(quadratics.by_hand(algorithm), algorithm, problem, lengths, x0)


def _vrl(inner=None, **options):
  return vrl_jax.vrl_sgd(inner or optax.sgd(RATE), axis_name='w', **options)


@pytest.mark.parametrize('buffers', ['keep', 'mean', 'reset'])
def test_1_deltas_sum_to_zero_after_every_communication(buffers):
  algorithm = _vrl(optax.sgd(RATE, momentum=0.9), buffers=buffers)
  functions = quadratics.by_hand(algorithm)
  for rounds_ in range(1, 5):
    *_, state = quadratics.run_by_hand(functions, algorithm, PROBLEM, [4] * rounds_, X0)
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


def test_3_period_1_is_synchronous_sgd():
  vrl, _, _ = _run(_vrl(), [1] * 20)
  synchronous, _, _ = _run(vrl_jax.s_sgd(optax.sgd(RATE), axis_name='w'), [1] * 20)
  np.testing.assert_allclose(vrl.mean(axis=1), synchronous.mean(axis=1), atol=1e-13)


def test_4_identical_gradients_make_it_local_sgd():
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
  length, count = 5, 30
  x, c, c_i = X0, np.zeros(7), np.zeros((8, 7))
  scaffold = []
  for _ in range(count):
    y = np.tile(x, (8, 1))
    for _ in range(length):
      y = y - RATE * (PROBLEM.gradients(y) - c_i + c)
    new = c_i - c + (x - y) / (length * RATE)
    c, c_i, x = c + (new - c_i).mean(axis=0), new, x + (y - x).mean(axis=0)
    scaffold.append(x)

  vrl, _, state = _run(_vrl(), [length] * count)
  np.testing.assert_allclose(vrl[length - 1 :: length, 0], scaffold, atol=1e-14)
  np.testing.assert_allclose(quadratics.to_flat(state.delta), c_i - c, atol=1e-12)


def test_6_it_reaches_the_optimum_where_local_sgd_is_biased():
  length, count = 10, 150
  vrl, _, _ = _run(_vrl(), [length] * count)
  local, _, _ = _run(vrl_jax.local_sgd(optax.sgd(RATE), axis_name='w'), [length] * count)
  np.testing.assert_allclose(vrl[-1], np.tile(PROBLEM.optimum, (8, 1)), atol=1e-12)
  # A local period takes x to c_i + (1 - 2 rate a_i)^k (x - c_i); the mean of these stands still where
  left = (1 - 2 * RATE * PROBLEM.a) ** length
  stuck = ((1 - left)[:, None] * PROBLEM.c).sum(axis=0) / (1 - left).sum()
  np.testing.assert_allclose(local[-1, 0], stuck, atol=1e-12)
  assert np.abs(stuck - PROBLEM.optimum).max() > 0.05


def test_7_with_warm_up_the_trajectory_does_not_depend_on_the_c():
  optimum = PROBLEM.optimum
  spread = PROBLEM.c - optimum  # a-weighted, these sum to zero, whatever they are multiplied by
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
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.01), axis_name=rounds.AXES)
  engine = _appendix_engine(algorithm, problem)
  state = engine.init(np.ones(1))
  for length in lengths:
    state, (scalars, models) = engine.trace(state, quadratics.items(engine, length))
  final = float(np.abs(np.asarray(models.params)[0, 0, -1, 0]))
  variance = float(np.asarray(scalars['variance_among_workers'])[0, 0, -1])
  assert float(f'{final:.1e}') == pytest.approx(distance)
  assert variance < 1e-3 if name == 'vrl_sgd' else variance > 1e4


def _appendix_engine(algorithm, problem):
  arrangement = arrange(2, 2)
  supply = quadratics.own_data(arrangement, problem._asdict())
  loss = lambda x, frozen, batch, rng: batch['a'] * jnp.sum(jnp.square(x - batch['c']))
  return rounds.Engine(algorithm, loss, arrangement, supply)
