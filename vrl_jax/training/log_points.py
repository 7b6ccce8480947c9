"""The steps at which a run logs, and the rounds between them; a pure function of the step."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from vrl_jax.engine.periods import Periods


class Segment(NamedTuple):
  """The rounds up to and including the one that is measured and logged.

  Attributes:
    plain: groups of rounds of equal length, as (first step, length, number of rounds).
    logged: (first step, length) of the measured round.

  >>> segment = Segment(plain=[(0, 4, 2)], logged=(8, 4))  # two rounds of 4 steps, then one that is measured
  >>> sum(segment.logged)  # the step of its log line
  12
  """

  plain: list[tuple[int, int, int]]
  logged: tuple[int, int]


def segments(periods: Periods, interval: float, start: int = 0) -> Iterator[Segment]:
  """Divides a run into segments; each ends with the first round boundary at or after a multiple of `interval` steps.

  Args:
    periods: the rounds of the run.
    interval: the steps between two log points, not necessarily an integer.
    start: the first step, a round boundary.

  >>> from vrl_jax.engine.periods import make_periods
  >>> for segment in segments(make_periods(steps=22, period=4), interval=9):
  ...   print(segment)
  Segment(plain=[(0, 4, 2)], logged=(8, 4))
  Segment(plain=[(12, 4, 1)], logged=(16, 4))
  Segment(plain=[], logged=(20, 2))
  """
  plain: list[tuple[int, int, int]] = []
  for step, length in periods.rounds(start):
    end = step + length
    if end == periods.steps or is_log_point(step, end, interval):
      yield Segment(plain, (step, length))
      plain = []
    elif plain and plain[-1][1] == length:
      first, _, count = plain[-1]
      plain[-1] = (first, length, count + 1)
    else:
      plain.append((step, length, 1))


def is_log_point(start: int, end: int, interval: float) -> bool:
  """Whether the round from `start` to `end` reaches a multiple of `interval` steps.

  >>> is_log_point(4, 8, interval=9), is_log_point(8, 12, interval=9)
  (False, True)
  """
  # The tolerance is for intervals such as 0.1 epochs.
  before, after = (math.floor(step / interval + 1e-9) for step in (start, end))
  return after > before


def logged_steps(periods: Periods, interval: float, until: int, every_step: bool = False) -> list[int]:
  """The steps from 0 to `until` that have a log line.

  Args:
    periods: the rounds of the run.
    interval: as in `segments`.
    until: the last step to list.
    every_step: whether all steps of a measured round are logged, and not only its last.

  >>> from vrl_jax.engine.periods import make_periods
  >>> logged_steps(make_periods(steps=22, period=4), interval=9, until=22)
  [0, 12, 20, 22]
  """
  steps = [0]
  for segment in segments(periods, interval):
    if steps[-1] >= until:
      break
    start, length = segment.logged
    steps += range(start + 1, start + length + 1) if every_step else [start + length]
  return [step for step in steps if step <= until]


def steps_per_dispatch(most: int | None, on_device: bool) -> int:
  """The maximum number of steps of one dispatch: 2,000 if the examples are on the devices, else those of one round.

  `python -m benchmarks choices` on 2 cores, a small MLP (2048-16-200, k = 5), time relative to dispatches of 2,000 steps:
  1.03 of 200, 1.13 of 20, 1.37 of 5.

  Args:
    most: overrides the choice; None chooses.
    on_device: whether only indices are sent to the devices; the batches of many rounds would fill the memory.

  >>> steps_per_dispatch(None, on_device=True), steps_per_dispatch(None, on_device=False)
  (2000, 1)
  """
  return most or (2000 if on_device else 1)


class Pacer:
  """Chooses the number of rounds per dispatch: enough to hide the cost of a dispatch, few enough to stay responsive.

  >>> pacer = Pacer(capacity=64, seconds=0.5)
  >>> pacer.rounds(remaining=100)  # nothing has been measured yet
  1
  >>> pacer.note(rounds=1, seconds=0.02)
  >>> pacer.rounds(remaining=100), pacer.rounds(remaining=7)
  (25, 7)
  """

  def __init__(self, capacity: int, seconds: float = 0.5):
    """Takes the maximum number of rounds of one dispatch, and the seconds that it should take."""
    self._capacity = capacity
    self._seconds = seconds
    self._per_round: float | None = None

  def rounds(self, remaining: int) -> int:
    """The number of rounds of the next dispatch."""
    wanted = 1 if self._per_round is None else int(self._seconds / max(self._per_round, 1e-9))
    return max(1, min(remaining, wanted, self._capacity))

  def note(self, rounds: int, seconds: float) -> None:
    """Records the time of a finished dispatch."""
    self._per_round = seconds / rounds
