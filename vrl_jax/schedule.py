"""When a run logs, evaluates and checkpoints: at round boundaries, as a pure function of the step."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from vrl_jax.periods import Periods


class Segment(NamedTuple):
  """The rounds up to and with the one that is measured and logged.

  Attributes:
    plain: groups of rounds of equal length, as (first step, length, number of rounds).
    logged: (first step, length) of the measured round.

  >>> segment = Segment(plain=[(0, 4, 2)], logged=(8, 4))  # two rounds of 4 steps, then one that is measured
  >>> sum(segment.logged)  # the step at which its line is logged
  12
  """

  plain: list[tuple[int, int, int]]
  logged: tuple[int, int]


def segments(periods: Periods, interval: float, start: int = 0) -> Iterator[Segment]:
  """Cuts a run into segments; each ends with the first round boundary at or after a multiple of `interval` steps.

  Args:
    periods: the run's rounds.
    interval: the steps between two log points, which need not be whole.
    start: the step to go on from, a round boundary.

  >>> from vrl_jax.periods import make_periods
  >>> for segment in segments(make_periods(steps=22, period=4), interval=9):
  ...   print(segment)
  Segment(plain=[(0, 4, 2)], logged=(8, 4))
  Segment(plain=[(12, 4, 1)], logged=(16, 4))
  Segment(plain=[], logged=(20, 2))
  """
  plain = []
  for step, length in periods.rounds(start):
    end = step + length
    if end == periods.steps or _points(end, interval) > _points(step, interval):
      yield Segment(plain, (step, length))
      plain = []
    elif plain and plain[-1][1] == length:
      first, _, count = plain[-1]
      plain[-1] = (first, length, count + 1)
    else:
      plain.append((step, length, 1))


def _points(step, interval):
  """The log points up to `step`; the tolerance is for intervals such as 0.1 epochs."""
  return math.floor(step / interval + 1e-9)


def steps_per_dispatch(most: int | None, on_device: bool) -> int:
  """The most steps that one dispatch runs: 2,000 if the examples are on the devices, else those of one round.

  `python -m benchmarks choices` on 2 cores, a small MLP (2048-16-200, k = 5), time relative to dispatches of 2,000 steps:
  1.03 of 200, 1.13 of 20, 1.37 of 5.

  Args:
    most: a number to take instead; None chooses.
    on_device: whether only indices travel; whole batches of many rounds would fill the memory.

  >>> steps_per_dispatch(None, on_device=True), steps_per_dispatch(None, on_device=False)
  (2000, 1)
  """
  return most or (2000 if on_device else 1)


class Pacer:
  """Chooses how many rounds to dispatch at once: enough to hide the dispatch, few enough to stay responsive.

  >>> pacer = Pacer(capacity=64, seconds=0.5)
  >>> pacer.rounds(remaining=100)  # nothing is known yet
  1
  >>> pacer.note(rounds=1, seconds=0.02)
  >>> pacer.rounds(remaining=100), pacer.rounds(remaining=7)
  (25, 7)
  """

  def __init__(self, capacity: int, seconds: float = 0.5):
    """Takes the most rounds of one dispatch and the time that it should last."""
    self._capacity = capacity
    self._seconds = seconds
    self._per_round = None

  def rounds(self, remaining: int) -> int:
    """The rounds of the next dispatch."""
    wanted = 1 if self._per_round is None else int(self._seconds / max(self._per_round, 1e-9))
    return max(1, min(remaining, wanted, self._capacity))

  def note(self, rounds: int, seconds: float) -> None:
    """Learns from a finished dispatch."""
    self._per_round = seconds / rounds
