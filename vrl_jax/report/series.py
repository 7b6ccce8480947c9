"""Groups runs: the seeds of one setting into a line, lines into panels, and runs that can be compared."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vrl_jax.config.algorithms import algorithm_options
from vrl_jax.config.table import ignored_fields, is_compared, stored_value
from vrl_jax.report import names
from vrl_jax.report.records import Run


class Line(NamedTuple):
  """One line of a figure: the runs of one setting, which differ only in the seed.

  Attributes:
    name: the name of the run, or what the names of its seeds have in common.
    label: the entry in the legends and tables.
    algorithm: the algorithm's registry key.
    runs: one per seed.
    variant: the index of this line among those of its algorithm.
    variants: the number of lines of its algorithm.

  >>> runs = [Run(f'a{seed}', {'algorithm': 'vrl_sgd', 'seed': seed}, ({'step': 5},)) for seed in (0, 1)]
  >>> line = Line('a', 'VRL-SGD', 'vrl_sgd', tuple(runs), variant=0, variants=1)
  >>> len(line.runs)  # seeds
  2
  """

  name: str
  label: str
  algorithm: str
  runs: tuple[Run, ...]
  variant: int
  variants: int


class Curve(NamedTuple):
  """Mean and range over the seeds, as arrays of equal length.

  >>> two_seeds = np.array([[1.0, 0.5], [3.0, 0.7]])
  >>> Curve(np.arange(2), two_seeds.mean(0), two_seeds.min(0), two_seeds.max(0)).mean
  array([2. , 0.6])
  """

  x: np.ndarray
  mean: np.ndarray
  low: np.ndarray
  high: np.ndarray


def key(value: object) -> str:
  """A config value as JSON, to compare and hash.

  >>> key({'b': 1, 'a': (2, None)})
  '{"a": [2, null], "b": 1}'
  """
  return json.dumps(value, sort_keys=True, default=str)


def ordered(values: Iterable[Any]) -> list[Any]:
  """Config values in ascending order; values of several types in the order of their types.

  >>> ordered([20, 5, None, 2.5, 'auto'])
  [2.5, 5, 20, None, 'auto']
  """
  kind = lambda value: '' if isinstance(value, int | float) else type(value).__name__
  comparable = lambda value: value if isinstance(value, int | float | str) else key(value)
  return sorted(values, key=lambda value: (kind(value), comparable(value)))


def ignores(run: Run, field: str) -> bool:
  """Whether a field has no effect on a run: S-SGD ignores the period.

  >>> ignores(Run('a', {'algorithm': 's_sgd', 'period': 20}, ()), 'period')
  True
  """
  return field in ignored_fields(run.algorithm)


def differing_fields(runs: Iterable[Run], ignore: Iterable[str] = ()) -> list[str]:
  """The config fields in which runs differ, in the order of the configs; bookkeeping fields are skipped.

  >>> runs = [Run(f'{k}', {'period': k, 'workers': 8, 'data_dir': f'data{k}'}, ()) for k in (5, 20)]
  >>> differing_fields(runs)  # the directory of the data does not count
  ['period']
  """
  runs, ignored = list(runs), set(ignore)
  fields = dict.fromkeys(
    field for run in runs for field in run.config if is_compared(field.split('.')[0]) and field not in ignored
  )
  return [field for field in fields if len({key(stored_value(run.config, field)) for run in runs}) > 1]


def facets(runs: Sequence[Run]) -> list[str]:
  """The fields that split the runs into separate comparisons: at least two algorithms ran with each value.

  >>> settings = [{'algorithm': a, 'period': k} for a in ('local_sgd', 'vrl_sgd') for k in (5, 20)]
  >>> facets([Run(str(i), config, ()) for i, config in enumerate(settings)])
  ['period']
  """
  chosen: list[str] = []
  parts = 1
  for field in differing_fields(runs, ('algorithm', 'first_period', 'seed')):
    fixed = [run for run in runs if not ignores(run, field)]
    common = {run.algorithm for run in runs if ignores(run, field)}
    algorithms: dict[str, set[str]] = {}
    for run in fixed:
      algorithms.setdefault(key(run.setting(field)), set(common)).add(run.algorithm)
    split = len({field_keys(run, [*chosen, field]) for run in fixed})
    if split > parts and len(algorithms) > 1 and min(map(len, algorithms.values())) > 1:
      chosen, parts = [*chosen, field], split
  return chosen


def field_keys(run: Run, fields: Sequence[str]) -> tuple[str, ...]:
  """The run's values of the fields, each as a `key`.

  >>> field_keys(Run('a', {'period': 20, 'task.b': 10.0}, ()), ['period', 'b'])
  ('20', '10.0')
  """
  return tuple(key(run.setting(field)) for field in fields)


def comparable(one: Run, other: Run, fields: Sequence[str]) -> bool:
  """Whether two runs have equal values of the fields; an S-SGD run matches every period.

  >>> local = Run('local', {'algorithm': 'local_sgd', 'period': 20}, ())
  >>> vrl, every_step = (Run(a, {'algorithm': a, 'period': 5}, ()) for a in ('vrl_sgd', 's_sgd'))
  >>> comparable(local, vrl, ['period']), comparable(local, every_step, ['period'])
  (False, True)
  """
  return all(
    ignores(one, field) or ignores(other, field) or key(one.setting(field)) == key(other.setting(field))
    for field in fields
  )


def lines_at(lines: Sequence[Line], fields: Sequence[str], values: Sequence[str]) -> list[Line]:
  """The lines of the panel in which the fields have the given values.

  >>> runs = [Run('every step', {'algorithm': 's_sgd', 'period': 5}, ())]
  >>> runs += [Run(f'k={k}', {'algorithm': 'vrl_sgd', 'period': k}, ()) for k in (5, 20)]
  >>> [line.name for line in lines_at(make_lines(runs, ['period']), ['period'], ['20'])]
  ['every step', 'k=20']
  """
  exact = [line for line in lines if field_keys(line.runs[0], fields) == tuple(values)]
  if not any(line.algorithm == 's_sgd' for line in exact):
    fits = lambda run: all(ignores(run, field) or key(run.setting(field)) == v for field, v in zip(fields, values))
    exact = [line for line in lines if line.algorithm == 's_sgd' and fits(line.runs[0])][:1] + exact
  return exact


def differ_only_in_algorithm(run: Run, other: Run) -> bool:
  """Whether two runs differ only in the algorithm, its options and the seed.

  >>> vrl = Run('vrl', {'algorithm': 'vrl_sgd', 'period': 20, 'learning_rate': 0.01}, ())
  >>> plain = [Run('s', {'algorithm': 's_sgd', 'learning_rate': rate}, ()) for rate in (0.01, 0.02)]
  >>> [differ_only_in_algorithm(vrl, run) for run in plain]
  [True, False]
  """
  fields = differing_fields((run, other), ('seed',))
  # A field that only one of the configs has is an option of its algorithm, which has a dotted path.
  own = [field for field in fields if (field in run.config) != (field in other.config)]
  # One S-SGD run is the baseline for all values of the fields that it ignores.
  return {'algorithm', *ignored_fields('s_sgd'), *algorithm_options(), *own}.issuperset(fields)


def group_seeds(runs: Sequence[Run]) -> list[tuple[Run, ...]]:
  """Groups the runs that differ only in the seed, in order of first appearance.

  >>> runs = [Run(f'k={k}, seed={s}', {'period': k, 'seed': s}, ()) for s in (0, 1) for k in (5, 20)]
  >>> [[run.name for run in group] for group in group_seeds(runs)]
  [['k=5, seed=0', 'k=5, seed=1'], ['k=20, seed=0', 'k=20, seed=1']]
  """
  groups: dict[tuple[str, int], list[Run]] = {}
  for run in runs:
    settings = {
      field: value
      for field, value in run.config.items()
      if is_compared(field) and field != 'seed' and value != stored_value({}, field)
    }
    copies = 0
    # A second run with the same seed is a repetition, shown as a line beside the first and not as one more seed.
    while any(_seed(run) == _seed(other) for other in groups.get((key(settings), copies), ())):
      copies += 1
    groups.setdefault((key(settings), copies), []).append(run)
  return [tuple(group) for group in groups.values()]


def make_lines(runs: Sequence[Run], fields: Sequence[str] = ()) -> list[Line]:
  """Groups runs into labelled lines.

  The labels are the names in the sweep if all runs have one, and are no grid of several comparisons; otherwise the
  algorithms, with the settings in which runs of the same algorithm differ.

  Args:
    runs: the runs.
    fields: the fields of the panels, which the labels leave out.

  Returns:
    One line per setting. Labels are unique within each panel.

  >>> settings = [{'algorithm': 'vrl_sgd', 'period': k} for k in (5, 20)] + [{'algorithm': 's_sgd', 'period': 20}]
  >>> [line.label for line in make_lines([Run(str(i), config, ()) for i, config in enumerate(settings)])]
  ['VRL-SGD, k = 5', 'VRL-SGD, k = 20', 'S-SGD']
  """
  groups = group_seeds(runs)
  family: dict[str, list[Run]] = {}
  for group in groups:
    family.setdefault(group[0].algorithm, []).append(group[0])
  label_fields = {name: _label_fields(members, name, fields) for name, members in family.items()}
  labels = _given_labels(runs, groups) or [_label(group[0], label_fields[group[0].algorithm]) for group in groups]
  positions = [(label, field_keys(group[0], fields)) for label, group in zip(labels, groups)]
  lines: list[Line] = []
  for label, position, group in zip(labels, positions, groups):
    name, algorithm = _common_name(group), group[0].algorithm
    label = f'{label} ({name})' if positions.count(position) > 1 else label
    siblings = list(dict.fromkeys(line.label for line in lines if line.algorithm == algorithm))
    variant = siblings.index(label) if label in siblings else len(siblings)
    lines.append(Line(name, label, algorithm, group, variant, 0))
  count = {name: 1 + max(line.variant for line in lines if line.algorithm == name) for name in family}
  return [line._replace(variants=count[line.algorithm]) for line in lines]


def curve(runs: Sequence[Run], x: str, y: str) -> Curve:
  """Mean and range over the seeds, up to the last step that all have; points that are not finite are left out.

  >>> points = lambda *losses: tuple({'step': t, 'train_loss': loss} for t, loss in enumerate(losses))
  >>> curve([Run('a', {}, points(4.0, 2.0)), Run('b', {}, points(2.0, 1.0))], 'step', 'train_loss')
  Curve(x=array([0., 1.]), mean=array([3. , 1.5]), low=array([2., 1.]), high=array([4., 2.]))
  """
  columns = []
  for run in runs:
    step, xs, ys = run.column('step'), run.column(x), run.column(y)
    keep = np.isfinite(xs) & np.isfinite(ys)
    columns.append((step[keep], xs[keep], ys[keep]))
  if any(len(step) == 0 for step, _, _ in columns):
    return Curve(*np.zeros((4, 0)))
  first, last = max(step[0] for step, _, _ in columns), min(step[-1] for step, _, _ in columns)
  grid = columns[0][0]
  grid = grid[(grid >= first) & (grid <= last)]
  xs = np.array([np.interp(grid, step, x) for step, x, _ in columns])
  ys = np.array([np.interp(grid, step, y) for step, _, y in columns])
  with np.errstate(over='ignore'):  # The last values of a run that diverges.
    return Curve(xs.mean(0), ys.mean(0), ys.min(0), ys.max(0))


def _seed(run):
  return key(run.config.get('seed'))


def _label_fields(members, algorithm, fields):
  known = {'algorithm', 'seed', *fields} | ({'first_period'} if algorithm == 'vrl_sgd_w' else set())
  return [field for field in differing_fields(members, known) if not ignores(members[0], field)]


def _given_labels(runs, groups):
  """The names of the groups in their sweep, or None: a name in a grid of comparisons repeats the setting of its panel."""
  # A name ends with its seed, even if the runs with the other seeds have not started.
  given = [_common_name(group).removesuffix(f', seed={group[0].config.get("seed")}') for group in groups]
  if facets(runs) or len(set(given)) < len(given) or not all(run.is_named for run in runs):
    return None
  pairs = [(name, group[0]) for name, group in zip(given, groups)]
  return [
    names.ALGORITHMS.get(run.algorithm, name) if name == run.config.get('algorithm') else name for name, run in pairs
  ]


def _label(run, fields):
  return ', '.join([names.algorithm(run.algorithm), *(names.setting(field, run.setting(field)) for field in fields)])


def _common_name(group):
  if len(group) == 1:
    return group[0].name
  bare = {re.sub(r'[-_/ .,]*(seed|s)[-_=]?\d+|(?<=[-_/.,])\d+$', '', run.name).strip('-_/ .,') for run in group}
  return bare.pop() if len(bare) == 1 and '' not in bare else group[0].name
