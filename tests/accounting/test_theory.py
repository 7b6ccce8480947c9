"""The theorem on noisy quadratics with known L, σ and f*, and period='auto'."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vrl_jax
from vrl_jax.accounting import theory
from vrl_jax.accounting.theory import auto_period
from vrl_jax.errors import UserError

DIMENSION, SEEDS = 3, 24
A, C = np.array([0.5, 1.5]), np.array([[3.0], [-1.0]])  # alternating a_i, c_i: f is the same for every even N
SMOOTHNESS, NOISE = 2 * A.max(), 2.0
X0 = 1.0


def _problem(workers):
  a, c = np.resize(A, workers), np.resize(C, (workers, 1)) * np.ones(DIMENSION)
  return a, c, (a[:, None] * c).sum(axis=0) / a.sum()


@functools.cache
def squared_gradients(name, workers, steps, period, rate, first_period=None):
  """E‖∇f(x̂ᵗ)‖² for t < T, and x̂ᵗ averaged over the seeds, with gradient noise of standard deviation σ."""
  a, c, optimum = _problem(workers)
  tx = vrl_jax.as_optax(vrl_jax.ALGORITHMS[name](optax.sgd(rate), axis_name='w'), period, first_period)

  def worker(a, c, keys):
    def step(carry, key):
      x, state = carry
      noise = NOISE / np.sqrt(DIMENSION) * jax.random.normal(key, x.shape, x.dtype)
      updates, state = tx.update(2 * a * (x - c) + noise, state, x)
      return (x + updates, state), x

    x = jnp.full(DIMENSION, X0)
    return jax.lax.scan(step, (x, tx.init(x)), keys)[1]

  def run(key):
    keys = jax.random.split(key, (workers, steps))
    return jax.vmap(worker, axis_name='w')(jnp.asarray(a), jnp.asarray(c), keys).mean(axis=0)

  mean = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), SEEDS)))  # [seeds, T, d]
  gradients = 2 * a.mean() * (mean - optimum)
  return (gradients**2).sum(axis=-1).mean(axis=0), mean.mean(axis=0)


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def _gap(workers):
  a, c, optimum = _problem(workers)
  value = lambda x: np.mean(a * ((x - c) ** 2).sum(axis=1))
  return value(np.full(DIMENSION, X0)) - value(optimum)


@pytest.mark.parametrize(
  ('workers', 'period', 'share', 'first_period'),
  [(2, 1, 1.0, None), (4, 5, 1.0, None), (4, 5, 0.3, 1), (16, 20, 0.9, 1)],
)
def test_the_measured_gradient_is_below_the_bound(workers, period, share, first_period):
  steps, rate = 600, share * theory.largest_learning_rate(SMOOTHNESS, period)
  squares, models = squared_gradients('vrl_sgd', workers, steps, period, rate, first_period)
  a, c, _ = _problem(workers)
  first = first_period or period
  drift = theory.drift(2 * a[None, :, None] * (models[:first, None] - c[None]))
  bound = theory.gradient_bound(
    steps=steps,
    workers=workers,
    period=period,
    learning_rate=rate,
    smoothness=SMOOTHNESS,
    noise=NOISE,
    gap=_gap(workers),
    drift=drift,
  )
  assert (drift > 0) == (first > 1)
  assert 0.01 * bound < squares.mean() < bound


def test_linear_speed_up():
  """With γ = (N/T)^½/σ the error decreases as 1/(NT)^½: four times the workers halve it."""
  steps = 6400
  errors = {}
  for workers in (2, 8):
    rate = theory.speedup_learning_rate(steps, workers, NOISE)
    assert rate < theory.largest_learning_rate(SMOOTHNESS, 2)
    errors[workers] = squared_gradients('vrl_sgd', workers, steps, 2, rate, 1)[0].mean()
  assert 1.6 < errors[2] / errors[8] < 2.5


def test_the_noise_floor_decreases_with_the_number_of_workers():
  """At a fixed γ only noise remains in the second half of a run, and it decreases as 1/N."""
  floors = [squared_gradients('vrl_sgd', n, 1600, 2, 0.02, 1)[0][800:].mean() for n in (2, 8)]
  assert 3 < floors[0] / floors[1] < 5.3


@pytest.mark.slow
def test_the_error_of_vrl_sgd_does_not_grow_at_a_period_where_that_of_local_sgd_does():
  workers, steps = 4, 1600
  long = theory.floor_period(theory.period_bound('vrl_sgd', steps, workers))
  short = theory.floor_period(theory.period_bound('local_sgd', steps, workers))
  assert (short, long) == (2, 5)
  rate = theory.speedup_learning_rate(steps, workers, NOISE)
  floor = lambda name, period: squared_gradients(name, workers, steps, period, rate, 1)[0][800:].mean()
  flat = floor('vrl_sgd', 1)
  assert floor('vrl_sgd', long) < 1.15 * flat
  assert floor('local_sgd', short) < 1.5 * flat
  assert floor('local_sgd', long) > 2 * flat


def test_conditions():
  assert theory.largest_learning_rate(3.0, 1) == pytest.approx(1 / (np.sqrt(72) * 3))
  terms = dict(steps=100, workers=4, period=10, smoothness=3.0, noise=1.0, gap=1.0)
  with pytest.raises(ValueError, match='learning_rate=0.01 with period=10 and L=3 is too large for the theorem'):
    theory.gradient_bound(learning_rate=0.01, **terms)
  # 3·1/(100·0.001) + 3·0.003/8 + 56·10·0.003² + 12·0.003²·7/100
  expected = 30 + 0.001125 + 0.00504 + 0.00000756
  assert theory.gradient_bound(learning_rate=0.001, drift=7.0, **terms) == pytest.approx(expected, rel=1e-12)
  # With the corollary's k its γ satisfies the theorem's condition.
  for steps, workers in ((10_000, 2), (10**6, 8)):
    k = theory.speedup_period(steps, workers, 3.0, 20.0)
    assert 72 * (k * theory.speedup_learning_rate(steps, workers, 20.0) * 3.0) ** 2 <= 1


def test_drift_by_hand():
  # Worker 0 is off by 1, then 2, then 4: sums before each step 0, 1, 3; worker 1 mirrors it.
  gradients = np.array([[[2.0], [0.0]], [[5.0], [1.0]], [[4.0], [-4.0]]])
  assert theory.drift(gradients) == (0 + 1 + 9) * 2 / 2
  assert theory.drift(gradients[:1]) == 0
  with pytest.raises(ValueError, match=r'gradients: shape \(2, 1\), must be \[k, N, d\]'):
    theory.drift(gradients[0])


def test_auto_period_is_the_period_bound():
  for name in theory.ALGORITHMS_WITH_BOUND:
    for identical in (True, False):
      bound = theory.period_bound(name, 40_000, 4, identical_data=identical)
      assert auto_period(name, steps=40_000, workers=4, identical_data=identical) == max(1, int(bound + 1e-9))
  assert set(theory.ALGORITHMS_WITH_BOUND) < set(vrl_jax.ALGORITHMS)
  assert theory.period_bound('easgd', 40_000, 4) is None


@pytest.mark.parametrize(
  ('algorithm', 'identical', 'expected'),
  [
    # T = 117,187, N = 8: 342.3 / 22.63 = 15.1, and 18.50 / 4.757 = 3.9.
    ('s_sgd', True, 1),
    ('s_sgd', False, 1),
    ('vrl_sgd', True, 15),
    ('vrl_sgd', False, 15),
    ('local_sgd', True, 15),
    ('local_sgd', False, 3),
  ],
)
def test_auto_period_in_the_example_of_the_paper(algorithm, identical, expected):
  assert auto_period(algorithm, steps=117_187, workers=8, identical_data=identical) == expected


def test_auto_period_is_at_least_1_and_exact_at_powers():
  assert auto_period('vrl_sgd', steps=10, workers=8, identical_data=False) == 1
  for k in range(1, 40):  # T = k² N³
    assert auto_period('vrl_sgd', steps=k**2 * 8**3, workers=8, identical_data=False) == k
    if k > 1:
      assert auto_period('vrl_sgd', steps=k**2 * 8**3 - 1, workers=8, identical_data=False) == k - 1
  for k in range(1, 15):  # T = k⁴ N³
    assert auto_period('local_sgd', steps=k**4 * 8**3, workers=8, identical_data=False) == k
  assert auto_period('vrl_sgd', steps=10_000, workers=1, identical_data=False) == math.isqrt(10_000)


def test_auto_period_without_a_bound():
  with pytest.raises(UserError, match='period="auto" is not available for algorithm=.easgd.'):
    auto_period('easgd', steps=100, workers=8, identical_data=False)
