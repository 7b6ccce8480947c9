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


class LogSteps:
  """The steps of a run's log lines, one after the other; where the period follows the loss, each line decides the next.

  Attributes:
    next_step: the step of the next log line; None after the last.
    periods: the rounds, as far as the log lines so far determine them.
    first_loss: the training loss of the first line; NaN before.

  >>> from vrl_jax.engine.periods import make_periods
  >>> steps = LogSteps(make_periods(steps=22, period=4), interval=9)
  >>> for step in steps.until(20):
  ...   print(step)
  ...   steps.add(train_loss=0.5)
  0
  12
  20
  >>> steps.next_step
  22
  """

  def __init__(self, periods: Periods, interval: float, every_step: bool = False):
    """Starts before the first line.

    Args:
      periods: the rounds of the run before any line is known.
      interval: as in `segments`.
      every_step: whether all steps of a measured round are logged, and not only its last.
    """
    self.next_step: int | None = 0
    self.periods = periods
    self.first_loss = math.nan
    self._interval = interval
    self._every_step = every_step
    self._round_end = 0

  def until(self, step: int) -> Iterator[int]:
    """Yields the next step as long as it is at most `step`; `add` must be called for each."""
    while self.next_step is not None and self.next_step <= step:
      yield self.next_step

  def add(self, train_loss: float) -> None:
    """Takes the training loss of the line of `next_step`."""
    assert self.next_step is not None
    step = self.next_step
    if step == 0:
      self.first_loss = train_loss
    self.periods = self.periods.after_loss(step, train_loss, self.first_loss)
    if step == self.periods.steps:
      self.next_step = None
      return
    if step < self._round_end:
      self.next_step = step + 1
      return
    start, length = next(segments(self.periods, self._interval, step)).logged
    self._round_end = start + length
    self.next_step = start + 1 if self._every_step else self._round_end


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
