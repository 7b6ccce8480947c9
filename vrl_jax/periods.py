"""The lengths of the rounds: a pure function of the global step."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vrl_jax import theory
from vrl_jax.errors import UserError

Stages = tuple[tuple[int, int], ...]


class Periods(NamedTuple):
  """How a run's steps fall into rounds.

  Attributes:
    steps: T, the steps of the whole run.
    period: k, the length of a round; the run's last one may be shorter.
    first_period: the length of the first round.
    stages: (step, period) pairs in the order of the steps: rounds that start at or after the step have that period. A
      round keeps the length that it began with.
    most: the longest period, if it follows the loss; else None.
  """

  steps: int
  period: int
  first_period: int
  stages: Stages = ()
  most: int | None = None

  def length(self, step: int) -> int:
    """The length of the round that starts at `step`, which must be the start of one.

    >>> periods = Periods(steps=10, period=4, first_period=1)
    >>> periods.length(0), periods.length(1), periods.length(5), periods.length(9)
    (1, 4, 4, 1)
    """
    planned = self.first_period if step == 0 else period_at(step, self.period, self.stages)
    return min(planned, self.steps - step)

  def after(self, logged: Iterable[tuple[int, float]]) -> 'Periods':
    """The rounds as far as a log tells: with `most` set, its (step, training loss) pairs make the stages.

    >>> Periods(steps=10, period=2, first_period=2, most=8).after([(0, 4.0), (6, 1.0)]).stages
    ((6, 4),)
    """
    return self if self.most is None else self._replace(stages=grown_by_loss(self.period, logged, self.most))

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
    count = 0
    for start, end, period in spans(self.period, self.first_period, self.stages):
      done = min(step, end or step) - start
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
  return ([period] + [k for start, k in stages if start <= step])[-1]


def spans(period: int, first_period: int, stages: Stages = ()) -> Iterator[tuple[int, int | None, int]]:
  """Yields (first step, end, period) of the stretches of whole rounds of one length; the last has no end.

  >>> list(spans(2, 1, ((4, 3), (6, 4))))
  [(0, 1, 1), (1, 5, 2), (5, 8, 3), (8, None, 4)]
  """
  yield 0, first_period, first_period
  start = first_period
  while True:
    current = period_at(start, period, stages)
    ahead = [step for step, _ in stages if step > start]
    if not ahead:
      yield start, None, current
      return
    end = start + math.ceil((ahead[0] - start) / current) * current
    yield start, end, current
    start = end


def make_periods(
  steps: int,
  period: int,
  first_period: int | None = None,
  stages: Iterable[tuple[int, int]] = (),
  most: int | None = None,
) -> Periods:
  """Checks and completes the lengths; `first_period=None` is `period`, 1 makes VRL-SGD into VRL-SGD-W.

  >>> list(make_periods(steps=50, period=20, first_period=1).rounds())
  [(0, 1), (1, 20), (21, 20), (41, 9)]
  """
  stages = check_stages(stages)
  if most is not None and stages:
    raise UserError(f'max_period={most} lets the period follow the loss, period_stages={stages!r} fixes it: give one')
  if most is not None and most < period:
    raise UserError(f'max_period={most}, must be at least the period, {period}')
  first_period = period_at(0, period, stages) if first_period is None else first_period
  for name, value in (('steps', steps), ('period', period), ('first_period', first_period)):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
      raise UserError(f'{name}={value!r}, must be a whole number of at least 1')
  return Periods(steps, period, first_period, stages, most)


def check_stages(stages: Iterable[tuple[int, int]]) -> Stages:
  """The stages as tuples, or UserError if they are not (step, period) pairs of whole numbers with growing steps.

  >>> check_stages([[0, 5], [100, 20]])
  ((0, 5), (100, 20))
  >>> try:
  ...   check_stages([(100, 20), (0, 5)])
  ... except UserError as error:
  ...   print(str(error).partition(', must be ')[2])
  (step, period) pairs of whole numbers, the steps growing
  """
  stages = tuple(map(tuple, stages))
  whole = lambda value, least: isinstance(value, int) and not isinstance(value, bool) and value >= least
  valid = all(len(stage) == 2 and whole(stage[0], 0) and whole(stage[1], 1) for stage in stages)
  if not valid or any(one[0] >= other[0] for one, other in zip(stages, stages[1:])):
    raise UserError(f'period_stages={stages!r}, must be (step, period) pairs of whole numbers, the steps growing')
  return stages


def post_local(switch_step: int, period: int) -> Stages:
  """Stages of post-local SGD: period 1 until a step, then `period` (Lin et al, 2018, arxiv.org/abs/1808.07217).

  >>> list(make_periods(9, 1, stages=post_local(3, 4)).rounds())
  [(0, 1), (1, 1), (2, 1), (3, 4), (7, 2)]
  """
  return ((0, 1), (switch_step, period))


def stagewise(period: int, boundaries: Iterable[int], factor: float = 2.0) -> Stages:
  """Stages whose period starts as `period` and grows by `factor` at each boundary, for where the learning rate falls.

  Where γ is divided by `factor` too, k·γ stays the same, and so does the drift of a round: STL-SGD (Shen et al, 2020,
  arxiv.org/abs/2006.06377). VRL-SGD's divisor is measured, so its Δ is exact through every change.

  >>> stagewise(5, (100, 200))
  ((0, 5), (100, 10), (200, 20))
  """
  return tuple((step, max(1, round(period * factor**i))) for i, step in enumerate((0, *boundaries)))


def grown_by_loss(period: int, logged: Iterable[tuple[int, float]], most: int) -> Stages:
  """Stages that follow what a run has logged: k doubles when the loss has fallen to a quarter, again and again.

  That is k·(F_0/F)^½ in powers of two, at least k and at most `most`, from each log point on; each period is a program
  to compile, so there should be few. As the loss falls so do the gradients, and a longer round drifts as little. (For
  Local SGD, whose error at the end grows with k, AdaComm shortens the period instead; VRL-SGD has no such error.) A
  function of the log alone: whoever resumes from the same log gets the same rounds.

  Args:
    period: k.
    logged: (step, training loss) of every log point so far; the first is the start.
    most: the longest period.

  >>> grown_by_loss(4, [(0, 2.0), (100, 0.6), (200, 0.5), (300, 0.4), (400, 0.01)], most=12)
  ((200, 8), (400, 12))

  References:
    Wang and Joshi, `Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD
    <https://arxiv.org/abs/1810.08313>`_, 2018, for AdaComm
  """
  stages, current, first = [], period, None
  for step, loss in logged:
    first = loss if first is None else first
    known = 0 < loss < math.inf and 0 < first < math.inf
    wanted = min(most, period * 2 ** max(0, math.floor(math.log(first / loss, 4)))) if known else period
    if wanted != current:
      stages, current = [*stages, (step, wanted)], wanted
  return tuple(stages)


def auto_period(algorithm: str, *, steps: int, workers: int, identical_data: bool) -> int:
  """The longest period that theory allows without slowing convergence, `period="auto"`: see `theory.period_bound`.

  >>> auto_period('vrl_sgd', steps=117_187, workers=8, identical_data=False)
  15
  >>> auto_period('local_sgd', steps=117_187, workers=8, identical_data=False)
  3
  """
  bound = theory.period_bound(algorithm, steps, workers, identical_data=identical_data)
  if bound is None:
    known = ', '.join(theory.BOUNDED)
    raise UserError(f'period="auto" is known for {known}; for algorithm={algorithm!r} give a number')
  return theory.whole_period(bound)
