"""Figures with a config field on the x axis, such as the error against the period: a run becomes a point."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from vrl_jax.config.table import is_compared
from vrl_jax.report import series
from vrl_jax.report.records import Run

_TAIL = 0.5  # A point is the mean over the last half of its run, to leave out the transient.


def is_numeric_field(runs: Sequence[Run], x: str) -> bool:
  """Whether `x` is a config field with numeric values, and not a metric.

  >>> runs = [Run('a', {'period': 5}, ({'step': 1, 'train_loss': 0.5},))]
  >>> is_numeric_field(runs, 'period'), is_numeric_field(runs, 'train_loss')
  (True, False)
  """
  values = [run.setting(x) for run in runs]
  numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
  return bool(runs) and numeric and not any(run.has(x) for run in runs)


def join_along_field(runs: Sequence[Run], field: str, y: str) -> list[Run]:
  """Joins runs that differ only in a field, and in fields that depend on it, into one run with a log point per value.

  Args:
    runs: the runs.
    field: a config field with numeric values.
    y: the metric; its value is the mean over the second half of a run.

  Returns:
    A run for each combination of algorithm, other settings and seed. Its log points have the keys `field`, `step` (with
    the same value) and `y`. An S-SGD run has no period: it becomes a horizontal line over the range of the others.

  >>> lines = lambda loss: ({'step': 9, 'train_loss': loss},)
  >>> runs = [Run(f'k={k}', {'algorithm': 'vrl_sgd', 'period': k}, lines(k / 10)) for k in (20, 5)]
  >>> (run,) = join_along_field(runs, 'period', 'train_loss')
  >>> [(point['period'], float(point['train_loss'])) for point in run.metrics]
  [(5, 0.5), (20, 2.0)]
  """
  by_algorithm: dict[str, list[Run]] = {}
  values = [run.setting(field) for run in runs if not series.ignores(run, field)]
  ends = sorted({min(values), max(values)}) if values else []
  for run in runs:
    by_algorithm.setdefault(run.algorithm, []).append(run)
  joined = []
  for members in by_algorithm.values():
    hidden = {field, *_dependent_fields(members, field)}
    groups: dict[str, list[Run]] = {}
    for run in members:
      settings = {k: v for k, v in run.config.items() if is_compared(k) and k not in hidden}
      groups.setdefault(series.key(settings), []).append(run)
    for group in groups.values():
      level = ends if len(group) == 1 and series.ignores(group[0], field) else []
      joined.append(_join(group, field, y, hidden, level))
  return joined


def _dependent_fields(runs, field):
  """The fields with one value for each value of `field`, such as a learning rate chosen by the number of workers."""
  dependent = []
  for other in series.differing_fields(runs, (field, 'seed', 'algorithm')):
    values: dict[str, set[str]] = {}
    for run in runs:
      values.setdefault(series.key(run.setting(field)), set()).add(series.key(run.config.get(other)))
    dependent += [other] if max(map(len, values.values())) == 1 else []
  return dependent


def _join(group, field, y, hidden, level):
  points = []
  for run in sorted(group, key=lambda run: run.setting(field)):
    column = run.column(y)
    tail = column[int(_TAIL * len(column)) :]
    mean = tail.mean() if len(tail) and run.status != 'diverged' else np.nan
    points += [{field: value, 'step': value, y: mean} for value in level or [run.setting(field)]]
  config = {k: v for k, v in group[0].config.items() if k not in hidden}
  return dataclasses.replace(
    group[0], config=config, metrics=tuple(points), summary={'status': 'finished'}, is_named=False
  )
