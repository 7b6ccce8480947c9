"""The lengths of the rounds: a pure function of the global step."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from vrl_jax.errors import UserError


class Periods(NamedTuple):
  """How a run's steps fall into rounds.

  Attributes:
    steps: T, the steps of the whole run.
    period: k, the length of a round; the run's last one may be shorter.
    first_period: the length of the first round.
  """

  steps: int
  period: int
  first_period: int

  def length(self, step: int) -> int:
    """The length of the round that starts at `step`, which must be the start of one.

    >>> periods = Periods(steps=10, period=4, first_period=1)
    >>> periods.length(0), periods.length(1), periods.length(5), periods.length(9)
    (1, 4, 4, 1)
    """
    planned = self.first_period if step == 0 else self.period
    return min(planned, self.steps - step)

  def rounds(self, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yields (first step, length) of every round from `start` on.

    >>> list(Periods(steps=10, period=4, first_period=4).rounds())
    [(0, 4), (4, 4), (8, 2)]
    """
    step = start
    while step < self.steps:
      yield step, self.length(step)
      step += self.length(step)

  def rounds_before(self, step: int) -> int:
    """The number of rounds that end at or before `step`.

    >>> [Periods(steps=10, period=4, first_period=1).rounds_before(step) for step in (0, 1, 5, 9, 10)]
    [0, 1, 2, 3, 4]
    """
    if step < self.first_period:
      return int(step > 0 and step == self.steps)
    full, rest = divmod(step - self.first_period, self.period)
    return 1 + full + int(rest > 0 and step == self.steps)


def make_periods(steps: int, period: int, first_period: int | None = None) -> Periods:
  """Checks and completes the lengths; `first_period=None` is `period`, 1 makes VRL-SGD into VRL-SGD-W."""
  first_period = period if first_period is None else first_period
  for name, value in (('steps', steps), ('period', period), ('first_period', first_period)):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
      raise UserError(f'{name}={value!r}, must be a whole number of at least 1')
  return Periods(steps, period, first_period)


_BOUNDS = {
  ('s_sgd', True): lambda steps, workers: 1.0,
  ('s_sgd', False): lambda steps, workers: 1.0,
  ('local_sgd', True): lambda steps, workers: steps**0.5 / workers**1.5,
  ('local_sgd', False): lambda steps, workers: steps**0.25 / workers**0.75,
  ('vrl_sgd', True): lambda steps, workers: steps**0.5 / workers**1.5,
  ('vrl_sgd', False): lambda steps, workers: steps**0.5 / workers**1.5,
}


def auto_period(algorithm: str, *, steps: int, workers: int, identical_data: bool) -> int:
  """The longest period that theory allows without slowing convergence, `period="auto"`.

  The bounds are T^½/N^{3/2} for VRL-SGD and for Local SGD on identical data, T^¼/N^¾ for Local SGD on other data, with
  constant 1, rounded down to at least 1.

  >>> auto_period('vrl_sgd', steps=117_187, workers=8, identical_data=False)
  15
  >>> auto_period('local_sgd', steps=117_187, workers=8, identical_data=False)
  3
  """
  bound = _BOUNDS.get((algorithm, identical_data))
  if bound is None:
    known = ', '.join(sorted({name for name, _ in _BOUNDS}))
    raise UserError(f'period="auto" is known for {known}; for algorithm={algorithm!r} give a number')
  return max(1, math.floor(bound(steps, workers) + 1e-9))
