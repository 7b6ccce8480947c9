"""Extending a run: the same config with more `epochs` or `steps`, in the same run directory.

An extended run has the same results as one that had the full length from the start. So nothing but the number of steps
may depend on the length, and a run that has ended with a round that a longer one would not have, because it was cut short
or measured only for the last log line, is resumed from before that round.
"""

from collections.abc import Mapping
from typing import Any

from vrl_jax.config.optimizers import follows_length
from vrl_jax.engine.periods import Periods
from vrl_jax.training.log_points import is_log_point

_LENGTHS = ('epochs', 'steps')


def is_longer(stored: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
  """Whether a config has more epochs, or more steps, than the stored one.

  >>> is_longer({'epochs': 1.0, 'steps': None}, {'epochs': 2.0, 'steps': None})
  True
  >>> is_longer({'epochs': 1.0, 'steps': None}, {'epochs': None, 'steps': 400})  # not known to be longer
  False
  """
  before, after = ([fields.get(name) for name in _LENGTHS] for fields in (stored, now))
  return any(
    here is not None and there is not None and here > there and before[1 - i] is None and after[1 - i] is None
    for i, (there, here) in enumerate(zip(before, after))
  )


def obstacle(fields: Mapping[str, Any]) -> str:
  """Why runs of a config cannot be extended: the field that follows the length of the run; '' if there is none.

  >>> obstacle({'period': 20, 'schedule': 'constant'}), obstacle({'period': 20, 'schedule': 'cosine'})
  ('', "schedule='cosine' follows the length of the run")
  """
  if fields.get('period') == 'auto':
    return "period='auto' follows the length of the run"
  if follows_length(fields):
    return f'schedule={fields["schedule"]!r} follows the length of the run'
  return ''


def longer_runs_have(periods: Periods, interval: float, start: int) -> bool:
  """Whether longer runs also have the last round of a run, which starts at `start`, and a log line after it.

    Args:
      periods: the rounds of the run.
      interval: the steps between two log points.
      start: the first step of its last round.

  >>> from vrl_jax.engine.periods import make_periods
  >>> [longer_runs_have(make_periods(steps, period=4), interval=8, start=start) for steps, start in ((16, 12), (14, 12))]
  [True, False]
  """
  length = periods._replace(steps=2**62).length(start)
  return start + length == periods.steps and is_log_point(start, start + length, interval)
