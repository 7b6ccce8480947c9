"""Runs as points: a metric against a config field, such as the error against the period."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from vrl_jax.report import series
from vrl_jax.report.records import Run

_TAIL = 0.5  # The share of a run that its point is the mean of: what is left when the start is forgotten.


def is_field(runs: Sequence[Run], x: str) -> bool:
  """Whether `x` is a config field with numbers, and no metric.

  >>> runs = [Run('a', {'period': 5}, ({'step': 1, 'train_loss': 0.5},))]
  >>> is_field(runs, 'period'), is_field(runs, 'train_loss')
  (True, False)
  """
  values = [run.setting(x) for run in runs]
  numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
  return bool(runs) and numbers and not any(run.has(x) for run in runs)


def regroup(runs: Sequence[Run], field: str, y: str) -> list[Run]:
  """Joins the runs that differ only in the field, and in what follows from it, to one run with a log point for each.

  Args:
    runs: the runs.
    field: a config field with numbers.
    y: the metric: its mean over the second half of each run.

  Returns:
    A run for each algorithm, other settings and seed. Its log points have `field`, `step` (the same) and `y`. S-SGD, to
    which the period means nothing, is level from the least value of the others to the greatest.

  >>> lines = lambda loss: ({'step': 9, 'train_loss': loss},)
  >>> runs = [Run(f'k={k}', {'algorithm': 'vrl_sgd', 'period': k}, lines(k / 10)) for k in (20, 5)]
  >>> [(point['period'], float(point['train_loss'])) for point in regroup(runs, 'period', 'train_loss')[0].metrics]
  [(5, 0.5), (20, 2.0)]
  """
  by_algorithm = {}
  values = [run.setting(field) for run in runs if not series.is_free(run, field)]
  ends = sorted({min(values), max(values)}) if values else []
  for run in runs:
    by_algorithm.setdefault(run.algorithm, []).append(run)
  joined = []
  for members in by_algorithm.values():
    hidden = {field, *_followers(members, field)}
    groups = {}
    for run in members:
      settings = {k: v for k, v in run.config.items() if k not in series.BOOKKEEPING | hidden}
      groups.setdefault(series.key(settings), []).append(run)
    for group in groups.values():
      level = ends if len(group) == 1 and series.is_free(group[0], field) else []
      joined.append(_join(group, field, y, hidden, level))
  return joined


def _followers(runs, field):
  """The fields that have one value for each value of `field`: a learning rate that is chosen by the workers."""
  followers = []
  for other in series.differing_fields(runs, (field, 'seed', 'algorithm')):
    values = {}
    for run in runs:
      values.setdefault(series.key(run.setting(field)), set()).add(series.key(run.config.get(other)))
    followers += [other] if max(map(len, values.values())) == 1 else []
  return followers


def _join(group, field, y, hidden, level):
  points = []
  for run in sorted(group, key=lambda run: run.setting(field)):
    column = run.column(y)
    tail = column[int(_TAIL * len(column)) :]
    value = tail.mean() if len(tail) and run.status != 'diverged' else np.nan
    points += [{field: place, 'step': place, y: value} for place in level or [run.setting(field)]]
  config = {k: v for k, v in group[0].config.items() if k not in hidden}
  return dataclasses.replace(group[0], config=config, metrics=tuple(points), summary={'status': 'finished'})
