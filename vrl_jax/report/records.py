"""Runs and sweeps as values."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_ACCURACIES = ('train_accuracy', 'test_accuracy')


@dataclasses.dataclass(frozen=True)
class Run:
  """One run, as its folder tells it.

  Attributes:
    name: the folder's name, or the sweep's name for the run.
    config: the config's fields; nested ones are joined with dots.
    metrics: the log points in the order of their steps. A null is a NaN.
    summary: the last log point and `status`; empty for a run that has not ended.
    partition: the worker x class table, or None.

  >>> run = Run('a', {'algorithm': 'vrl_sgd', 'task.b': 10.0}, ({'step': 5, 'test_accuracy': 0.5},))
  >>> run.algorithm, run.setting('b'), run.final('test_accuracy'), run.status
  ('vrl_sgd', 10.0, 50.0, 'unfinished')
  """

  name: str
  config: Mapping[str, Any]
  metrics: tuple[Mapping[str, float], ...]
  summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  partition: Mapping[str, Any] | None = None

  @property
  def algorithm(self) -> str:
    """The algorithm's registry key; VRL-SGD with a first period of 1 is `vrl_sgd_w`."""
    name = str(self.config.get('algorithm', 'unknown'))
    if name == 'vrl_sgd' and self.config.get('first_period') == 1 and self.config.get('period') != 1:
      return 'vrl_sgd_w'
    return name

  @property
  def status(self) -> str:
    """`finished`, `diverged`, `interrupted`, or `unfinished` where there is no summary yet."""
    return str(self.summary.get('status', 'unfinished'))

  def setting(self, field: str) -> Any:
    """The value of a config field; `b` also finds `task.b` where there is only one such field."""
    if field in self.config:
      return self.config[field]
    nested = [key for key in self.config if key.endswith('.' + field)]
    return self.config[nested[0]] if len(nested) == 1 else None

  def has(self, key: str) -> bool:
    """Whether any log point has this metric, finite or not."""
    return key in self.summary or any(key in line for line in self.metrics)

  def column(self, key: str) -> np.ndarray:
    """One value per log point, NaN where there is none. Accuracies are in percent."""
    return self._percent(key) * np.array([line.get(key, math.nan) for line in self.metrics], float)

  def final(self, key: str) -> float | None:
    """The last value; None if the run never reported it."""
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
  """Runs to be compared.

  Attributes:
    title: the heading of tables and figures.
    runs: in the sweep's order.
    figures: what to draw, see `vrl_jax.report.comparison_figure`; empty for the default.
    missing: the names of runs that the sweep lists but that have no folder yet.

  >>> runs = tuple(Run(f'k={k}', {'algorithm': 'vrl_sgd', 'period': k}, ({'step': k},)) for k in (5, 10))
  >>> [run.name for run in Sweep('periods', runs, missing=('k=20',)).runs]
  ['k=5', 'k=10']
  """

  title: str
  runs: tuple[Run, ...]
  figures: tuple[Mapping[str, Any], ...] = ()
  missing: tuple[str, ...] = ()


def to_number(value) -> float:
  """A JSON number, null or text as a float; NaN where it is none.

  >>> to_number(2), to_number(None), to_number('text')
  (2.0, nan, nan)
  """
  return float(value) if isinstance(value, (bool, int, float)) else math.nan


def flat_runs(runs) -> tuple[Run, ...]:
  """The runs of a sweep, of one run, or of any iterable of runs.

  >>> run = Run('a', {}, ({'step': 5},))
  >>> flat_runs(run) == flat_runs([run]) == flat_runs(Sweep('one', (run,))) == (run,)
  True
  """
  if isinstance(runs, Sweep):
    return runs.runs
  return (runs,) if isinstance(runs, Run) else tuple(runs)
