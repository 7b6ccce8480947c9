"""Variance reduction with Adam: Δ before the preconditioner reaches the optimum, Δ after it does not."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family

import vrl_jax

PERIOD, ROUNDS = 10, 150


@pytest.fixture(autouse=True)
def standard_promotion(x64):
  with jax.numpy_dtype_promotion('standard'):  # required by optax's Adam
    yield


def _rate(t):
  return 0.05 * 0.5 * (1 + np.cos(np.pi * t / (PERIOD * ROUNDS)))


def numpy_adam(problem, rounds, placement, x0=family.X0, b1=0.9, b2=0.999, eps=1e-8):
  """[T, N, d] models of local Adam without Δ (None), with Δ before Adam ('gradient') or after Adam ('direction')."""
  x = np.tile(x0, (8, 1))
  m, v, delta = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
  out, t = [], 0
  for _ in range(rounds):
    gradients, moved = [], 0.0
    for _ in range(PERIOD):
      rate = _rate(t)
      t += 1
      g = problem.gradients(x)
      gradients.append(g)
      g = g - delta if placement == 'gradient' else g
      m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
      direction = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
      x = x - rate * (direction - delta if placement == 'direction' else direction)
      moved += rate
      out.append(x)
    mean = np.tile(x.mean(axis=0), (8, 1))
    if placement == 'gradient':
      own = np.mean(gradients, axis=0)
      delta = own - own.mean(axis=0)
    if placement == 'direction':
      delta = delta + (mean - x) / moved
    x = out[-1] = mean
  return np.stack(out)


def _adam():
  return optax.adam(optax.cosine_decay_schedule(0.05, PERIOD * ROUNDS))


def test_by_hand():
  # One step a period, constant gradients 1 and 3, sgd(0.5): Δ = -1 and 1 after the first period and after the second.
  algorithm = vrl_jax.vrl_adaptive(optax.sgd(0.5), axis_name='w')
  models, state = family.run_rounds(algorithm, [jnp.array([1.0, 3.0])], 2, jnp.zeros(2))
  np.testing.assert_array_equal(models, [[-1, -1], [-2, -2]])
  np.testing.assert_array_equal(state.delta, [-1, 1])
  np.testing.assert_array_equal(state.count, 0)


def _delta_after_adam():
  sgd = optax.sgd(optax.cosine_decay_schedule(0.05, PERIOD * ROUNDS))
  return vrl_jax.precede(optax.scale_by_adam(), vrl_jax.vrl_sgd(sgd, axis_name='w'))


@pytest.mark.parametrize(
  ('make', 'placement'),
  [
    (lambda: vrl_jax.vrl_adaptive(_adam(), axis_name='w'), 'gradient'),
    (_delta_after_adam, 'direction'),
    (lambda: vrl_jax.local_sgd(_adam(), axis_name='w'), None),
  ],
)
def test_against_numpy(make, placement):
  algorithm = make()
  models, _, _ = family.run(algorithm, [PERIOD] * 3)
  np.testing.assert_allclose(models, numpy_adam(family.PROBLEM, 3, placement), atol=1e-11)


def test_it_reaches_the_optimum_unlike_local_adam_and_delta_after_adam():
  distance = lambda models: np.abs(models[-1] - family.PROBLEM.optimum).max()
  models, _, _ = family.run(vrl_jax.vrl_adaptive(_adam(), axis_name='w'), [PERIOD] * ROUNDS)
  assert distance(models) < 1e-9
  assert distance(numpy_adam(family.PROBLEM, ROUNDS, None)) > 0.1
  assert distance(numpy_adam(family.PROBLEM, ROUNDS, 'direction')) > 0.1


def test_with_sgd_and_a_constant_rate_it_is_vrl_sgd():
  models, _, state = family.run(vrl_jax.vrl_adaptive(optax.sgd(0.03), axis_name='w'))
  expected, _, vrl = family.run(vrl_jax.vrl_sgd(optax.sgd(0.03), axis_name='w'))
  np.testing.assert_allclose(models, expected, atol=1e-12)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), state.delta, vrl.delta)


@pytest.mark.parametrize('buffers', ['mean', 'reset'])
def test_buffers(buffers):
  algorithm = vrl_jax.vrl_adaptive(optax.adam(0.02), buffers=buffers, axis_name='w')
  _, _, state = family.run(algorithm, [4, 4])
  mu, count = np.asarray(state.inner[0].mu['scalar']), np.asarray(state.inner[0].count)
  assert np.ptp(mu) < 1e-15 and (buffers == 'mean') == bool(mu[0])
  np.testing.assert_array_equal(count, 8)
