"""Runs and sweeps in memory."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_ACCURACIES = ('train_accuracy', 'test_accuracy')


@dataclasses.dataclass(frozen=True)
class Run:
  """One run, as read from its directory.

  Attributes:
    name: the name of the directory, or that of the run in its sweep.
    config: the config fields; nested ones are joined with dots.
    metrics: the log points by increasing step; a null in the file is a NaN.
    summary: the last log point and `status`; empty for a run that has not ended.
    partition: the table of examples per worker and class, or None.
    is_named: whether the name was chosen in a sweep, and is no mere directory.

  >>> run = Run('a', {'algorithm': 'vrl_sgd', 'task.b': 10.0}, ({'step': 5, 'test_accuracy': 0.5},))
  >>> run.algorithm, run.setting('b'), run.final('test_accuracy'), run.status
  ('vrl_sgd', 10.0, 50.0, 'unfinished')
  """

  name: str
  config: Mapping[str, Any]
  metrics: tuple[Mapping[str, float], ...]
  summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  partition: Mapping[str, Any] | None = None
  is_named: bool = dataclasses.field(default=False, repr=False)

  @property
  def algorithm(self) -> str:
    """The algorithm's registry key; VRL-SGD with a first period of 1 is `vrl_sgd_w`."""
    name = str(self.config.get('algorithm', 'unknown'))
    if name == 'vrl_sgd' and self.config.get('first_period') == 1 and self.config.get('period') != 1:
      return 'vrl_sgd_w'
    return name

  @property
  def status(self) -> str:
    """`finished`, `diverged`, `interrupted`, or `unfinished` if there is no summary yet."""
    return str(self.summary.get('status', 'unfinished'))

  def setting(self, field: str) -> Any:
    """The value of a config field; `b` also matches `task.b` if no other field ends in `.b`."""
    if field in self.config:
      return self.config[field]
    nested = [key for key in self.config if key.endswith('.' + field)]
    return self.config[nested[0]] if len(nested) == 1 else None

  def has(self, key: str) -> bool:
    """Whether any log point has the metric, even if its value is not finite."""
    return key in self.summary or any(key in line for line in self.metrics)

  def column(self, key: str) -> np.ndarray:
    """The values of a metric, one per log point, NaN if missing. Accuracies are in percent."""
    with np.errstate(over='ignore'):
      return self._percent(key) * np.array([line.get(key, math.nan) for line in self.metrics], float)

  def final(self, key: str) -> float | None:
    """The last value of a metric; None if the run never logged it."""
    lines = [line[key] for line in self.metrics if key in line]
    value = to_number(self.summary[key]) if key in self.summary else lines[-1] if lines else None
    return None if value is None else self._percent(key) * value

  def _percent(self, key):
    if key not in _ACCURACIES:
      return 1.0
    values = [line[key] for line in self.metrics if key in line]
    return 100.0 if all(not value > 1 for value in values) else 1.0


@dataclasses.dataclass(frozen=True)
class Sweep:
  """Runs to compare.

  Attributes:
    title: the heading of the report.
    runs: the runs, in the order of the sweep.
    figures: the figure specs, see `vrl_jax.report.comparison_figure`; empty for the default figures.
    missing: the names of runs that the sweep lists and that have no directory yet.
    unreadable: the errors of runs that were left out because their files are damaged.

  >>> runs = tuple(Run(f'k={k}', {'algorithm': 'vrl_sgd', 'period': k}, ({'step': k},)) for k in (5, 10))
  >>> [run.name for run in Sweep('periods', runs, missing=('k=20',)).runs]
  ['k=5', 'k=10']
  """

  title: str
  runs: tuple[Run, ...]
  figures: tuple[Mapping[str, Any], ...] = ()
  missing: tuple[str, ...] = ()
  unreadable: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # no part of what the figures show


def to_number(value: object) -> float:
  """A JSON value as a float; NaN if it is not a number, infinite if it is beyond the range of floats.

  >>> to_number(2), to_number(None), to_number('text'), to_number(10**400)
  (2.0, nan, nan, inf)
  """
  if not isinstance(value, (bool, int, float)):
    return math.nan
  try:
    return float(value)
  except OverflowError:
    return math.inf if value > 0 else -math.inf


def flat_runs(runs: Sweep | Run | Iterable[Run]) -> tuple[Run, ...]:
  """The runs of a sweep, a single run or an iterable of runs, as a tuple.

  >>> run = Run('a', {}, ({'step': 5},))
  >>> flat_runs(run) == flat_runs([run]) == flat_runs(Sweep('one', (run,))) == (run,)
  True
  """
  if isinstance(runs, Sweep):
    return runs.runs
  return (runs,) if isinstance(runs, Run) else tuple(runs)
