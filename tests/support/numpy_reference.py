"""The algorithms in plain NumPy and float64, written from the mathematics and independent of vrl_jax.

Heterogeneous quadratics f_i(x) = a_i‖x − c_i‖². Arrays [N, d] have one row per worker.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Quadratics(NamedTuple):
  a: np.ndarray  # [N]
  c: np.ndarray  # [N, d]

  def losses(self, x):
    return self.a * ((x - self.c) ** 2).sum(axis=1)

  def gradients(self, x):
    return 2 * self.a[:, None] * (x - self.c)

  @property
  def optimum(self):
    return (self.a[:, None] * self.c).sum(axis=0) / self.a.sum()


def heterogeneous(workers=8, dimension=7, seed=0):
  rng = np.random.default_rng(seed)
  return Quadratics(rng.uniform(0.5, 2.0, workers), rng.normal(size=(workers, dimension)))


class SGD(NamedTuple):
  """The inner optimizer: weight decay is added to the gradient, followed by momentum and the step's learning rate."""

  rate: Callable[[int], float]
  weight_decay: float = 0.0
  momentum: float = 0.0
  nesterov: bool = False

  def step(self, x, direction, buffer, t):
    """Returns x and the momentum buffer after step t."""
    direction = direction + self.weight_decay * x
    buffer = direction + self.momentum * buffer
    used = direction + self.momentum * buffer if self.nesterov else buffer
    return x - self.rate(t) * used, buffer

  def response(self, start, length, rest):
    """How far a constant gradient 1 moves x in the steps start ... start + length − 1, if the buffer was 0 at `rest`.

    The buffer after j steps is 1 + β + … + β^{j−1}. Nesterov's step is 1 + β·buffer, the buffer after j + 1 steps.
    """
    beta, total = self.momentum, 0.0
    for t in range(start, start + length):
      j = t - rest + 1 + self.nesterov
      total += self.rate(t) * (1 - beta**j) / (1 - beta)
    return total


class Step(NamedTuple):
  """One step of all workers.

  Attributes:
    loss: the workers' losses before it, [N].
    direction: v_i, [N, d].
    delta: Δ_i in this step, [N, d].
    local: x_i after it, before any communication, [N, d].
    x: x_i after it, including the communication if it ends a round, [N, d].
    consensus: the model to evaluate after it, [d].
    new_delta: Δ_i after it, [N, d].
  """

  loss: np.ndarray
  direction: np.ndarray
  delta: np.ndarray
  local: np.ndarray
  x: np.ndarray
  consensus: np.ndarray
  new_delta: np.ndarray


def run(
  name: str,
  problem: Quadratics,
  inner: SGD,
  lengths: Sequence[int],
  x0: np.ndarray,
  *,
  buffers: str = 'keep',
  alpha: float | None = None,
) -> list[Step]:
  """The steps of a run with rounds of these lengths; every worker starts at x0 [d]."""
  workers = len(problem.a)
  x = np.tile(x0.astype(np.float64), (workers, 1))
  delta, buffer, centre = np.zeros_like(x), np.zeros_like(x), x0.astype(np.float64)
  alpha = 0.9 / workers if alpha is None else alpha
  t = rest = 0
  steps = []
  for length in lengths:
    for place in range(length):
      loss, gradient = problem.losses(x), problem.gradients(x)
      used, v = delta, gradient - delta
      taken = np.tile(gradient.mean(axis=0), (workers, 1)) if name == 's_sgd' else v
      x, buffer = inner.step(x, taken, buffer, t)
      local = x
      t += 1
      if place == length - 1:
        mean = x.mean(axis=0)
        if name == 'easgd':
          pull = x - centre
          x, centre = x - alpha * pull, centre + alpha * pull.sum(axis=0)
        if name == 'vrl_sgd':
          moved = inner.response(t - length, length, rest)
          delta = delta + (mean - x) / moved if moved else delta
        if name in ('local_sgd', 'vrl_sgd'):
          x = np.tile(mean, (workers, 1))
          if buffers == 'mean':
            buffer = np.tile(buffer.mean(axis=0), (workers, 1))
          if buffers == 'reset':
            buffer = np.zeros_like(buffer)
          if buffers != 'keep':
            rest = t
      consensus = centre if name == 'easgd' else x.mean(axis=0)
      steps.append(Step(loss, v, used, local, x, consensus, delta))
  return steps


def lengths(steps: int, period: int, first_period: int | None = None) -> list[int]:
  """The lengths of the rounds; the last may be partial."""
  out = [min(first_period or period, steps)]
  while sum(out) < steps:
    out.append(min(period, steps - sum(out)))
  return out
