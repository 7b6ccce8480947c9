"""Numbers worked out by hand, one case per algorithm: two workers, one coordinate."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vrl_jax


def _run(algorithm, gradients, start=0.0):
  """Takes one local step per pair of gradients, then communicates."""
  x = jnp.full(2, start)
  state = jax.vmap(algorithm.transform.init)(x)
  return _continue(algorithm, x, state, gradients)


def _continue(algorithm, x, state, gradients):
  for pair in gradients:
    updates, state = jax.vmap(algorithm.transform.update, axis_name='w')(jnp.array(pair), state, x)
    x = x + updates
  local = x
  x, state = jax.vmap(algorithm.communicate, axis_name='w')(x, state)
  return local, x, state


def test_s_sgd():
  # Mean gradients 2 and 5: x = 1 - 0.5 * 2 = 0, then 0 - 0.5 * 5 = -2.5, on both.
  local, x, _ = _run(vrl_jax.s_sgd(optax.sgd(0.5), axis_name='w'), [(1.0, 3.0), (4.0, 6.0)], start=1.0)
  np.testing.assert_allclose(local, [-2.5, -2.5])
  np.testing.assert_allclose(x, [-2.5, -2.5])


def test_s_sgd_applies_momentum_to_the_mean_gradient():
  # m = 2, x = -1; m = 5 + 0.5 * 2 = 6, x = -1 - 3 = -4.
  local, _, _ = _run(vrl_jax.s_sgd(optax.sgd(0.5, momentum=0.5), axis_name='w'), [(1.0, 3.0), (4.0, 6.0)])
  np.testing.assert_allclose(local, [-4.0, -4.0])


@pytest.mark.parametrize(
  ('buffers', 'expected'),
  [
    # After the first period m = (1, 3), x̂ = (-0.5 - 1.5) / 2 = -1. The next gradients are 0:
    ('keep', [-1.25, -1.75]),  # m = (0.5, 1.5), x = -1 - 0.5 * m
    ('mean', [-1.5, -1.5]),  # m = 0.5 * 2 = 1
    ('reset', [-1.0, -1.0]),  # m = 0
  ],
)
def test_local_sgd(buffers, expected):
  algorithm = vrl_jax.local_sgd(optax.sgd(0.5, momentum=0.5), buffers=buffers, axis_name='w')
  local, x, state = _run(algorithm, [(1.0, 3.0)])
  np.testing.assert_allclose(local, [-0.5, -1.5])
  np.testing.assert_allclose(x, [-1.0, -1.0])
  local, x, _ = _continue(algorithm, x, state, [(0.0, 0.0)])
  np.testing.assert_allclose(local, expected)
  np.testing.assert_allclose(x, [np.mean(expected)] * 2)


def test_easgd():
  # x = 4 - 0.5 * (2, 6) = (3, 1), c = 4, e = (-1, -3), alpha = 0.25:
  # x = (3 + 0.25, 1 + 0.75), c = 4 + 0.25 * (-4) = 3.
  algorithm = vrl_jax.easgd(optax.sgd(0.5), alpha=0.25, axis_name='w')
  local, x, state = _run(algorithm, [(2.0, 6.0)], start=4.0)
  np.testing.assert_allclose(local, [3.0, 1.0])
  np.testing.assert_allclose(x, [3.25, 1.75])
  np.testing.assert_allclose(state.centre, [3.0, 3.0])
  np.testing.assert_allclose(jax.vmap(algorithm.consensus, axis_name='w')(x, state), [3.0, 3.0])
  # Next: gradients 0, e = (0.25, -1.25): x = (3.1875, 2.0625), c = 3 + 0.25 * (-1) = 2.75.
  _, x, state = _continue(algorithm, x, state, [(0.0, 0.0)])
  np.testing.assert_allclose(x, [3.1875, 2.0625])
  np.testing.assert_allclose(state.centre, [2.75, 2.75])


def test_easgd_default_alpha():
  # 0.9 / N = 0.45: e = (-1, -3), c = 4 - 0.45 * 4 = 2.2, x = (3.45, 2.35).
  _, x, state = _run(vrl_jax.easgd(optax.sgd(0.5), axis_name='w'), [(2.0, 6.0)], start=4.0)
  np.testing.assert_allclose(x, [3.45, 2.35], rtol=1e-6)
  np.testing.assert_allclose(state.centre, [2.2, 2.2], rtol=1e-6)


@pytest.mark.parametrize('alpha', [0.0, -0.1, 1.5])
def test_easgd_rejects_alpha_outside_0_1(alpha):
  with pytest.raises(ValueError, match=f'alpha={alpha}'):
    vrl_jax.easgd(optax.sgd(0.5), alpha=alpha)


def test_easgd_rejects_alpha_above_1_over_n():
  algorithm = vrl_jax.easgd(optax.sgd(0.5), alpha=0.6, axis_name='w')
  with pytest.raises(ValueError, match='alpha=0.6 with 2 workers.*1.2 > 1.*at most 1/N = 0.5'):
    _run(algorithm, [(2.0, 6.0)])
  _run(vrl_jax.easgd(optax.sgd(0.5), alpha=0.5, axis_name='w'), [(2.0, 6.0)])


def test_vrl_sgd():
  # k = 2, rate 0.5. x = -0.5 * (1 + 2, 3 + 8) = (-1.5, -5.5), x̂ = -3.5.
  # Δ = (x̂ - x_i) / (2 * 0.5) = (-2, 2): the mean gradients 1.5 and 5.5 minus their mean.
  algorithm = vrl_jax.vrl_sgd(optax.sgd(0.5), axis_name='w')
  local, x, state = _run(algorithm, [(1.0, 3.0), (2.0, 8.0)])
  np.testing.assert_allclose(local, [-1.5, -5.5])
  np.testing.assert_allclose(x, [-3.5, -3.5])
  np.testing.assert_allclose(state.delta, [-2.0, 2.0])
  # Next period, of one step: v = (3 + 2, 5 - 2) = (5, 3), x = -3.5 - 0.5 * v = (-6, -5), x̂ = -5.5.
  # Δ = (-2, 2) + (0.5, -0.5) / 0.5 = (-1, 1).
  local, x, state = _continue(algorithm, x, state, [(3.0, 5.0)])
  np.testing.assert_allclose(local, [-6.0, -5.0])
  np.testing.assert_allclose(x, [-5.5, -5.5])
  np.testing.assert_allclose(state.delta, [-1.0, 1.0])
  np.testing.assert_allclose(jax.vmap(algorithm.correction)(state), [-1.0, 1.0])


def test_vrl_sgd_with_momentum():
  # k = 2, rate 0.5, β = 0.5, constant gradients 1 and 3.
  # m = g then 1.5 g: x = -0.5 * 2.5 g = (-1.25, -3.75); a unit gradient moves 0.5 * (1 + 1.5) = 1.25.
  # x̂ = -2.5, Δ = (-1.25, 1.25) / 1.25 = (-1, 1).
  algorithm = vrl_jax.vrl_sgd(optax.sgd(0.5, momentum=0.5), axis_name='w')
  local, x, state = _run(algorithm, [(1.0, 3.0)] * 2)
  np.testing.assert_allclose(local, [-1.25, -3.75])
  np.testing.assert_allclose(x, [-2.5, -2.5])
  np.testing.assert_allclose(state.delta, [-1.0, 1.0])
  # Next, one step, buffers kept: v = (2, 2), m = 2 + 0.5 * (1.5, 4.5) = (2.75, 4.25), x = (-3.875, -4.625), x̂ = -4.25.
  # The probe: m = 1 + 0.5 * 1.5 = 1.75, response 0.875. Δ = (-1, 1) + (-0.375, 0.375) / 0.875.
  local, x, state = _continue(algorithm, x, state, [(1.0, 3.0)])
  np.testing.assert_allclose(local, [-3.875, -4.625])
  np.testing.assert_allclose(state.delta, [-1 - 3 / 7, 1 + 3 / 7], rtol=1e-6)
