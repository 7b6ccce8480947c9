r"""The convergence theory of VRL-SGD: bounds on the period, the learning rate and the gradient.

Theorem (Liang et al, 2019): for L-smooth :math:`f_i` and gradients of variance at most :math:`\sigma^2`, if
:math:`\gamma \le 1/(2L)` and :math:`72 k^2 \gamma^2 L^2 \le 1`, then

.. math::

  \frac{1}{T} \sum_{t<T} E\|\nabla f(\hat x^t)\|^2 \le \frac{3 (f(\hat x^0) - f^*)}{T\gamma} +
  \frac{3 \gamma L \sigma^2}{2N} + 56 k \gamma^2 \sigma^2 L^2 + \frac{12 \gamma^2 L^2 C}{T} .

With :math:`\gamma = \sqrt{N/T} / \sigma` the first two terms are :math:`O(1/\sqrt{NT})`: a linear speed-up in N. The
third is no larger as long as k is at most of the order of :math:`T^{1/2} / N^{3/2}`.

The paper states the corollary both with 64 and with 72 (the proof uses 72), and omits the square on
:math:`\|\nabla f\|`, the :math:`L^2` in the last term and the constants of the bounds on k.
"""

import math

import numpy as np

from vrl_jax.errors import UserError

_WITHOUT_DRIFT = lambda steps, workers: steps**0.5 / workers**1.5
_WITH_DRIFT = lambda steps, workers: steps**0.25 / workers**0.75
_EVERY_STEP = lambda steps, workers: 1.0

# The longest period that keeps the linear speed-up, by algorithm: on identical and on non-identical data.
_PERIOD_BOUNDS = {
  's_sgd': (_EVERY_STEP, _EVERY_STEP),
  'local_sgd': (_WITHOUT_DRIFT, _WITH_DRIFT),
  'cocod_sgd': (_WITHOUT_DRIFT, _WITH_DRIFT),
  'vrl_sgd': (_WITHOUT_DRIFT, _WITHOUT_DRIFT),
  'scaffold': (_WITHOUT_DRIFT, _WITHOUT_DRIFT),  # with all workers and a global rate of 1 it is VRL-SGD
  'd2': (_EVERY_STEP, _EVERY_STEP),
  'extra': (_EVERY_STEP, _EVERY_STEP),
}
ALGORITHMS_WITH_BOUND = tuple(_PERIOD_BOUNDS)
"""The algorithms whose `period_bound` is known."""


def period_bound(algorithm: str, steps: int, workers: int, *, identical_data: bool = False) -> float | None:
  """The longest period that does not slow convergence, with constant 1, or None if no bound is known.

  It is T^½/N^{3/2} for VRL-SGD, and for Local SGD and CoCoD-SGD on identical data; T^¼/N^¾ for the latter two
  otherwise.

  >>> round(period_bound('vrl_sgd', 117_187, 8), 2), round(period_bound('local_sgd', 117_187, 8), 2)
  (15.13, 3.89)
  """
  bounds = _PERIOD_BOUNDS.get(algorithm)
  return None if bounds is None else bounds[not identical_data](steps, workers)


def floor_period(bound: float) -> int:
  """A bound rounded down to a period of at least 1.

  >>> floor_period(period_bound('vrl_sgd', 117_187, 8)), floor_period(0.3)
  (15, 1)
  """
  return max(1, math.floor(bound + 1e-9))


def largest_learning_rate(smoothness: float, period: int) -> float:
  """The theorem's condition on γ: at most 1/(2L) and 1/(√72·kL).

  >>> round(largest_learning_rate(2.0, 1), 6), round(largest_learning_rate(2.0, 10), 6)
  (0.058926, 0.005893)
  """
  return min(1 / (2 * smoothness), 1 / (math.sqrt(72) * period * smoothness))


def speedup_learning_rate(steps: int, workers: int, noise: float) -> float:
  """The corollary's γ = (N/T)^½/σ.

  >>> speedup_learning_rate(steps=800, workers=8, noise=2.0)
  0.05
  """
  return math.sqrt(workers / steps) / noise


def speedup_period(steps: int, workers: int, smoothness: float, noise: float) -> float:
  """The corollary's bound on k with its constant: σT^½/(√72·L·N^{3/2}).

  >>> round(speedup_period(steps=1_000_000, workers=4, smoothness=1.0, noise=1.0), 2)
  14.73
  """
  return noise * math.sqrt(steps) / (math.sqrt(72) * smoothness * workers**1.5)


def gradient_bound(
  *,
  steps: int,
  workers: int,
  period: int,
  learning_rate: float,
  smoothness: float,
  noise: float,
  gap: float,
  drift: float = 0.0,
) -> float:
  """The theorem's right-hand side: a bound on the mean over the steps of E‖∇f(x̂)‖².

  Args:
    steps: T.
    workers: N.
    period: k.
    learning_rate: γ, constant.
    smoothness: L, the same for all f_i.
    noise: σ, the standard deviation of a worker's gradient: E‖g_i − ∇f_i‖² ≤ σ².
    gap: f(x̂⁰) − f*.
    drift: C, see `drift`; 0 with warm-up (`first_period=1`).

  Raises:
    ValueError: if γ is larger than the theorem allows.

  >>> terms = dict(steps=1000, workers=8, period=5, learning_rate=0.01, smoothness=1.0, noise=1.0)
  >>> round(gradient_bound(**terms, gap=0.0), 6), round(gradient_bound(**terms, gap=1.0), 6)
  (0.029875, 0.329875)
  """
  limit = largest_learning_rate(smoothness, period)
  if learning_rate > limit * (1 + 1e-9):
    raise ValueError(
      f'learning_rate={learning_rate:g} with period={period} and L={smoothness:g} is too large for the theorem, which '
      f'allows at most min(1/(2L), 1/(√72·kL)) = {limit:g}'
    )
  gl, variance = learning_rate * smoothness, noise**2
  return (
    3 * gap / (steps * learning_rate)
    + 3 * gl * variance / (2 * workers)
    + 56 * period * gl**2 * variance
    + 12 * gl**2 * drift / steps
  )


def drift(gradients: np.ndarray) -> float:
  r"""C, the cost of the first period, in which Δ is still 0.

  .. math::

    C = \frac{1}{N} \sum_{t<k} \sum_i \Big\| \sum_{\tau<t} (\nabla f_i(\hat x^\tau) - \nabla f(\hat x^\tau)) \Big\|^2

  Args:
    gradients: ∇f_i(x̂^τ) in the first period, [k, N, d].

  >>> drift(np.array([[[1.0], [-1.0]]] * 3))  # 0² + 1² + 2²
  5.0
  >>> drift(np.array([[[1.0], [-1.0]]]))  # with warm-up, k = 1
  0.0
  """
  if gradients.ndim != 3:
    raise ValueError(f'gradients: shape {gradients.shape}, must be [k, N, d]')
  apart = gradients - gradients.mean(axis=1, keepdims=True)
  before = np.cumsum(apart, axis=0) - apart
  return float((before**2).sum() / gradients.shape[1])


def auto_period(algorithm: str, *, steps: int, workers: int, identical_data: bool) -> int:
  """The period for `period="auto"`: `period_bound` rounded down.

  >>> auto_period('vrl_sgd', steps=117_187, workers=8, identical_data=False)
  15
  >>> auto_period('local_sgd', steps=117_187, workers=8, identical_data=False)
  3
  """
  bound = period_bound(algorithm, steps, workers, identical_data=identical_data)
  if bound is None:
    known = ', '.join(ALGORITHMS_WITH_BOUND)
    raise UserError(f'period="auto" is not available for algorithm={algorithm!r}, only for {known}; set a number')
  return floor_period(bound)
