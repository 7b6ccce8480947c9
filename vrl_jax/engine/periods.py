"""The lengths of the rounds, as a pure function of the global step."""

import bisect
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from vrl_jax.errors import UserError

Stages = tuple[tuple[int, int], ...]


class Periods(NamedTuple):
  """The division of a run's steps into rounds.

  Attributes:
    steps: T, the total number of steps.
    period: k, the length of a round; the last round of the run may be shorter.
    first_period: the length of the first round.
    stages: (step, period) pairs with increasing steps: rounds that start at or after the step have that period. A round
      that has started keeps its length.
    max_period: the longest period, if the period follows the training loss; else None.
  """

  steps: int
  period: int
  first_period: int
  stages: Stages = ()
  max_period: int | None = None

  def length(self, step: int) -> int:
    """The length of the round that starts at `step`, which must be the start of a round.

    >>> periods = Periods(steps=10, period=4, first_period=1)
    >>> periods.length(0), periods.length(1), periods.length(5), periods.length(9)
    (1, 4, 4, 1)
    """
    planned = self.first_period if step == 0 else period_at(step, self.period, self.stages)
    return min(planned, self.steps - step)

  def after_loss(self, step: int, loss: float, first_loss: float) -> 'Periods':
    """The periods with the stage that follows from the training loss at a new log point, if `max_period` is set.

    >>> Periods(steps=10, period=2, first_period=2, max_period=8).after_loss(6, loss=1.0, first_loss=4.0).stages
    ((6, 4),)
    """
    if self.max_period is None:
      return self
    wanted = period_from_loss(self.period, loss, first_loss, self.max_period)
    current = self.stages[-1][1] if self.stages else self.period
    return self if wanted == current else self._replace(stages=(*self.stages, (step, wanted)))

  def rounds(self, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yields (first step, length) of every round from `start` on.

    >>> list(Periods(steps=10, period=4, first_period=4).rounds())
    [(0, 4), (4, 4), (8, 2)]
    >>> list(Periods(steps=15, period=2, first_period=1, stages=((4, 3), (6, 4))).rounds())
    [(0, 1), (1, 2), (3, 2), (5, 3), (8, 4), (12, 3)]
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
    return self.rounds_between(0, step)

  def rounds_between(self, start: int, step: int) -> int:
    """The number of rounds that end after `start`, which must be the start of a round, and at or before `step`.

    >>> periods = Periods(steps=10, period=4, first_period=1)
    >>> periods.rounds_between(1, 9), periods.rounds_between(5, 10), periods.rounds_between(5, 8)
    (2, 2, 0)
    """
    count = 0
    for first, end, period in spans(self.period, self.first_period, self.stages, start):
      done = (step if end is None else min(step, end)) - first
      if done <= 0:
        break
      full, rest = divmod(done, period)
      count += full + int(rest > 0 and step == self.steps)
    return count


def period_at(step: int, period: int, stages: Stages = ()) -> int:
  """The period of a round that starts at `step` > 0.

  >>> [period_at(step, 2, ((10, 4), (20, 8))) for step in (9, 10, 19, 20)]
  [2, 4, 4, 8]
  """
  later = _later_stage(step, stages)
  return stages[later - 1][1] if later else period


def _later_stage(step, stages):
  """The index of the first stage after `step`."""
  return bisect.bisect_right(stages, step, key=lambda stage: stage[0])


def spans(period: int, first_period: int, stages: Stages = (), start: int = 0) -> Iterator[tuple[int, int | None, int]]:
  """Yields (first step, end, period) of each run of rounds of equal length from `start` on; the last has no end.

  >>> list(spans(2, 1, ((4, 3), (6, 4))))
  [(0, 1, 1), (1, 5, 2), (5, 8, 3), (8, None, 4)]
  >>> list(spans(2, 1, ((4, 3), (6, 4)), start=3))
  [(3, 5, 2), (5, 8, 3), (8, None, 4)]
  """
  if start == 0:
    yield 0, first_period, first_period
    start = first_period
  while True:
    current, later = period_at(start, period, stages), _later_stage(start, stages)
    if later == len(stages):
      yield start, None, current
      return
    end = start + math.ceil((stages[later][0] - start) / current) * current
    yield start, end, current
    start = end


def make_periods(
  steps: int,
  period: int,
  first_period: int | None = None,
  stages: Iterable[tuple[int, int]] = (),
  max_period: int | None = None,
) -> Periods:
  """Checks the arguments and makes the periods.

  Args:
    steps: T.
    period: k.
    first_period: the length of the first round; None is `period`. With 1, VRL-SGD becomes VRL-SGD-W.
    stages: see `Periods`.
    max_period: see `Periods`.

  >>> list(make_periods(steps=50, period=20, first_period=1).rounds())
  [(0, 1), (1, 20), (21, 20), (41, 9)]
  """
  stages = check_stages(stages)
  if max_period is not None and stages:
    raise UserError(f'max_period={max_period} cannot be combined with period_stages={stages!r}: set only one of them')
  if max_period is not None and max_period < period:
    raise UserError(f'max_period={max_period}, must be at least the period, {period}')
  first_period = period_at(0, period, stages) if first_period is None else first_period
  for name, value in (('steps', steps), ('period', period), ('first_period', first_period)):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
      raise UserError(f'{name}={value!r}, must be an integer of at least 1')
  return Periods(steps, period, first_period, stages, max_period)


def check_stages(stages: Iterable[tuple[int, int]]) -> Stages:
  """The stages as tuples; UserError if they are not (step, period) pairs of integers with increasing steps.

  >>> check_stages([[0, 5], [100, 20]])
  ((0, 5), (100, 20))
  >>> try:
  ...   check_stages([(100, 20), (0, 5)])
  ... except UserError as error:
  ...   print(str(error).partition(', must be ')[2])
  (step, period) pairs of integers with increasing steps
  """
  pairs: tuple[Any, ...] = tuple(tuple(stage) if isinstance(stage, Iterable) else (stage,) for stage in stages)
  is_int = lambda value, minimum: isinstance(value, int) and not isinstance(value, bool) and value >= minimum
  valid = all(len(pair) == 2 and is_int(pair[0], 0) and is_int(pair[1], 1) for pair in pairs)
  if not valid or any(pair[0] >= later[0] for pair, later in zip(pairs, pairs[1:])):
    raise UserError(f'period_stages={pairs!r}, must be (step, period) pairs of integers with increasing steps')
  return pairs


def post_local(switch_step: int, period: int) -> Stages:
  """Stages of post-local SGD: period 1 until a step, then `period` (Lin et al, 2018, arxiv.org/abs/1808.07217).

  >>> list(make_periods(9, 1, stages=post_local(3, 4)).rounds())
  [(0, 1), (1, 1), (2, 1), (3, 4), (7, 2)]
  """
  return ((0, 1), (switch_step, period))


def stagewise(period: int, boundaries: Iterable[int], factor: float = 2.0) -> Stages:
  """Stages of STL-SGD: the period starts as `period` and is multiplied by `factor` at each boundary.

  If γ is divided by `factor` at the same steps, k·γ and the drift of a round stay constant (Shen et al, 2020,
  arxiv.org/abs/2006.06377). VRL-SGD's divisor is measured, so its Δ stays exact when the period changes.

  >>> stagewise(5, (100, 200))
  ((0, 5), (100, 10), (200, 20))
  """
  return tuple((step, max(1, round(period * factor**i))) for i, step in enumerate((0, *boundaries)))


def stages_from_losses(period: int, logged: Iterable[tuple[int, float]], max_period: int) -> Stages:
  """Stages that follow the training loss: k doubles whenever the loss has fallen to a quarter.

  From each log point on, the period is k·(F_0/F)^½, rounded down to k times a power of two and bounded by k and
  `max_period`; there should be few periods, because each is a program to compile. As the loss falls so do the
  gradients, and a longer round has the same drift. (AdaComm shortens the period instead, for Local SGD, whose final
  error grows with k; VRL-SGD has no such error.) The stages depend on the log only, so a resumed run has the same
  rounds.

  Args:
    period: k.
    logged: (step, training loss) of every log point so far, from the first step on.
    max_period: the longest period.

  >>> stages_from_losses(4, [(0, 2.0), (100, 0.6), (200, 0.5), (300, 0.4), (400, 0.01)], max_period=12)
  ((200, 8), (400, 12))

  References:
    Wang and Joshi, `Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD
    <https://arxiv.org/abs/1810.08313>`_, 2018, for AdaComm
  """
  stages: list[tuple[int, int]] = []
  current, first = period, None
  for step, loss in logged:
    first = loss if first is None else first
    wanted = period_from_loss(period, loss, first, max_period)
    if wanted != current:
      stages.append((step, wanted))
      current = wanted
  return tuple(stages)


def period_from_loss(period: int, loss: float, first_loss: float, max_period: int) -> int:
  """The period from a log point on; see `stages_from_losses`.

  >>> period_from_loss(4, loss=0.5, first_loss=2.0, max_period=12)
  8
  """
  if not (0 < loss < math.inf and 0 < first_loss < math.inf):
    return period
  return min(max_period, period * 2 ** max(0, math.floor(math.log(first_loss / loss, 4))))
