"""The comparison table: one row per setting, with mean and standard deviation over its seeds."""

import collections
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vrl_jax import errors
from vrl_jax.report import glossary, names, series
from vrl_jax.report.markup import element
from vrl_jax.report.records import Run, Sweep, flat_runs


class _Column(NamedTuple):
  title: str
  value: Callable[[Run, Sequence[Run]], float | None]
  show: Callable[[float], str]
  better: Callable[[list[float]], float] | None = None  # min or max; None if no value is best.


def _final(key):
  return lambda run, runs: run.final(key)


def _count(value):
  return f'{value:,.0f}' if value < 1e15 else f'{value:.1e}'


def loss_ratio(run: Run, runs: Sequence[Run]) -> float | None:
  """The final loss divided by S-SGD's with the same settings and seed, or by its mean over the seeds.

  >>> lines = lambda loss: ({'step': 9, 'train_loss': loss},)
  >>> plain, vrl = (Run(name, {'algorithm': name}, lines(loss)) for name, loss in (('s_sgd', 0.5), ('vrl_sgd', 0.6)))
  >>> loss_ratio(vrl, [plain, vrl])
  1.2
  """
  baselines = [other for other in runs if other.algorithm == 's_sgd' and series.differ_only_in_algorithm(run, other)]
  same_seed = [other for other in baselines if other.config.get('seed') == run.config.get('seed')]
  finals = [other.final('train_loss') for other in same_seed or baselines]
  losses = [value for value in finals if value is not None]
  base = _mean(losses) if losses and len(losses) == len(finals) else math.nan
  loss = run.final('train_loss')
  return loss / base if loss is not None and math.isfinite(base) and base > 0 else None


_COLUMNS = (
  _Column('train loss', _final('train_loss'), names.format_number, min),
  _Column('test acc. %', _final('test_accuracy'), lambda value: f'{value:.2f}', max),
  _Column('distance', _final('distance_to_optimum'), lambda value: names.format_number(value, 3), min),
  _Column('× S-SGD', loss_ratio, lambda value: f'{value:.2f}' if value < 1e4 else f'{value:.1e}'),
  _Column('comm.', _final('communications'), _count),
  _Column('sent', _final('bytes_communicated'), names.format_bytes),
  _Column('seconds', _final('seconds'), lambda value: _count(value) if value >= 100 else f'{value:.1f}'),
)


class Table(NamedTuple):
  """The cells as text, and which of them are the best of their comparison.

  >>> final = {'s_sgd': 0.5, 'easgd': 2.0}
  >>> runs = [Run(name, {'algorithm': name}, ({'step': 9, 'train_loss': loss},)) for name, loss in final.items()]
  >>> table = make_table(runs)
  >>> [row[table.titles.index('train loss')] for row in table.best]
  [True, False]
  """

  titles: list[str]
  rows: list[list[str]]
  best: list[list[bool]]


def comparison_table(runs: Sweep | Run | Iterable[Run], format: str = 'text', without: Sequence[str] = ()) -> str:
  """A table of the final metrics of runs.

  Columns that no run has are omitted. Runs that differ only in the seed share a row, with mean ± standard deviation.
  The first column has the labels of the figures' legends; fields that split the sweep into several comparisons have
  separate columns.
  `× S-SGD` is the final train loss divided by that of the S-SGD run with the same other settings.

  Args:
    runs: a sweep, a run or an iterable of runs.
    format: `text`, `markdown` or `html`. The last two show the best value of each comparison in bold; runs are
      compared if they agree in the fields that split the sweep, such as the period.
    without: titles of columns to omit.

  Returns:
    The table.

  >>> lines = lambda loss: ({'step': 9, 'train_loss': loss},)
  >>> runs = [Run(f'VRL-SGD, seed={s}', {'algorithm': 'vrl_sgd', 'seed': s}, lines(1.0 + s)) for s in (0, 1)]
  >>> runs += [Run('S-SGD', {'algorithm': 's_sgd', 'seed': 0}, lines(1.0))]
  >>> print(comparison_table(runs))
  run         train loss      × S-SGD  status
  -------  -------------  -----------  ----------
  VRL-SGD  1.500 ± 0.707  1.50 ± 0.71  unfinished
  S-SGD            1.000         1.00  unfinished
  >>> print(comparison_table(runs, 'markdown').splitlines()[-1])
  | S-SGD | **1.000** | 1.00 | unfinished |
  """
  formats = {'text': _text, 'markdown': _markdown, 'html': _html}
  if format not in formats:
    raise errors.UserError(f'table format {format!r}, must be one of {", ".join(formats)}')
  table = make_table(flat_runs(runs))
  keep = [i for i, title in enumerate(table.titles) if title not in without]
  chosen = lambda row: [row[i] for i in keep]
  return formats[format](Table(chosen(table.titles), [*map(chosen, table.rows)], [*map(chosen, table.best)]))


def make_table(runs: Sequence[Run]) -> Table:
  """The cells of `comparison_table`.

  >>> make_table([Run('VRL-SGD', {'algorithm': 'vrl_sgd'}, ({'step': 9, 'train_loss': 0.25},))]).rows
  [['VRL-SGD', '0.2500', 'unfinished']]
  """
  fields = series.facets(runs)
  lines = series.make_lines(runs, fields)
  titles = ['run', *(names.FIELDS.get(field, field) for field in fields)]
  cells = [[' '.join(line.label.split()), *(_setting(line.runs[0], field) for field in fields)] for line in lines]
  best = [[False] * len(titles) for _ in lines]
  for column in _COLUMNS:
    values = [[column.value(run, runs) for run in line.runs] for line in lines]
    values = [[v for v in row if v is not None] for row in values]
    if not any(values):
      continue
    titles.append(column.title)
    winners = _winners(lines, values, column, fields)
    for i, row in enumerate(values):
      cells[i].append(_cell(row, column.show))
      best[i].append(i in winners)
  for i, line in enumerate(lines):
    counts = collections.Counter(run.status for run in line.runs)
    cells[i].append(next(iter(counts)) if len(counts) == 1 else ', '.join(f'{n} {s}' for s, n in counts.items()))
    best[i].append(False)
  return Table([*titles, 'status'], cells, best)


def _setting(run, field):
  return '–' if series.ignores(run, field) else names.format_value(run.setting(field))


def _winners(lines, values, column, fields):
  if column.better is None:
    return set()
  means = {id(line): _mean(row) if row else math.nan for line, row in zip(lines, values)}
  winners = set()
  for i, line in enumerate(lines):
    here = series.lines_at(lines, fields, series.field_keys(line.runs[0], fields))
    if len(here) < 2:  # An S-SGD run that is the baseline of all periods.
      here = [other for other in lines if series.comparable(line.runs[0], other.runs[0], fields)]
    rivals = [means[id(other)] for other in here if math.isfinite(means[id(other)])]
    shown = {column.show(rival) for rival in rivals}
    if (
      len(shown) > 1
      and math.isfinite(means[id(line)])
      and column.show(means[id(line)]) == column.show(column.better(rivals))
    ):
      winners.add(i)
  return winners


def _cell(values, show):
  if not values:
    return '–'
  mean = show(_mean(values))
  if len(values) == 1 or max(values) == min(values) or not all(map(math.isfinite, values)):
    return mean
  try:
    deviation = statistics.stdev(values)
  except OverflowError:
    return mean
  # With as many decimals as the mean.
  plain = mean.replace(',', '').replace('.', '', 1).isdigit()
  return f'{mean} ± ' + (f'{deviation:.{len(mean.partition(".")[2])}f}' if plain else show(deviation))


def _mean(values):
  try:
    return statistics.fmean(values)
  except (OverflowError, ValueError):  # beyond the range of floats, or inf - inf
    return math.nan


def _text(table):
  rows = [table.titles, *table.rows]
  widths = [max(len(row[i]) for row in rows) for i in range(len(table.titles))]
  ends = (0, len(widths) - 1)
  align = lambda row: '  '.join(
    cell.ljust(width) if i in ends else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))
  ).rstrip()
  return '\n'.join([align(table.titles), '  '.join('-' * width for width in widths), *map(align, table.rows)])


def _markdown(table):
  words = ('run', 'status')
  rule = ['---' if title in words else '---:' for title in table.titles]
  rows = [
    [f'**{cell}**' if bold else cell for cell, bold in zip(map(_markdown_cell, row), bolds)]
    for row, bolds in zip(table.rows, table.best)
  ]
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in (table.titles, rule, *rows))


def _markdown_cell(cell):
  return cell.replace('|', '\\|').replace('<', '\\<')


def _html(table):
  head = element('tr', [element('th', _explained(title), scope='col') for title in table.titles])
  rows = []
  for (name, *cells), (_, *bolds) in zip(table.rows, table.best):
    shown = [element('td', element('strong', cell) if bold else cell) for cell, bold in zip(cells, bolds)]
    rows.append(element('tr', element('th', name, scope='row'), shown))
  return element('table', element('thead', head), element('tbody', rows), class_='numbers')


def _explained(title):
  about = glossary.COLUMNS.get(title)
  return element('abbr', title, title=about) if about else title
