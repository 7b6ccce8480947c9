"""The sections of the page: settings, the examples of each worker, and figures."""

import base64
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vrl_jax.report import glossary, names, series, specs
from vrl_jax.report.markup import Markup, element, escape
from vrl_jax.report.records import Run

_MAX_ROWS = 20  # of a table without a scroll bar
_MAX_CLASSES = 30  # of a partition table with numbers in its cells
_MAX_WORKERS = 32  # of a partition table: 512 workers with 200 classes are 19 MB
_SHADES = 10  # of the cells of a partition table, the classes h1 to h10 in page.css


def scroll(table: str, rows: int, label: str) -> Markup:
  """A table in a box that scrolls sideways, and downwards if it is long.

  >>> scroll(element('table'), 3, 'Results')
  '<div class="scroll" tabindex="0" role="region" aria-label="Results"><table></table></div>'
  """
  kind = 'scroll long' if rows > _MAX_ROWS else 'scroll'
  return element('div', table, class_=kind, tabindex=0, role='region', aria_label=label)


def settings(runs: Sequence[Run]) -> Markup:
  """A table of the settings in which the runs differ, with a row per line of the figures, and a list of the others.

  >>> runs = [Run(f'k={k}', {'algorithm': 'vrl_sgd', 'period': k}, ()) for k in (5, 20)]
  >>> '<td>20</td>' in settings(runs), '<dt>algorithm</dt><dd>vrl_sgd</dd>' in settings(runs)
  (True, True)
  """
  fields = series.differing_fields(runs)
  common = {field: value for run in runs for field, value in run.config.items() if field not in fields}
  parts = []
  if fields:
    facets = series.facets(runs)
    lines = series.make_lines(runs, facets)
    rows = [[line.label, *(_values(line.runs, field) for field in fields)] for line in lines]
    titles = ['run', *fields]
    if facets or not all(run.is_named for run in runs):  # then the label is not the name
      titles, rows = [*titles, 'name'], [[*row, line.name] for row, line in zip(rows, lines)]
    parts.append(scroll(_table(titles, rows), len(rows), 'Settings that differ'))
  items = [
    element('div', element('dt', field), element('dd', names.format_value(value)))
    for field, value in sorted(common.items())
    if field.split('.')[0] not in ('sweep', 'figure', 'seeds')
  ]
  summary = element('summary', 'Common settings' if len(runs) > 1 else 'Settings of the run')
  return escape([*parts, element('details', summary, element('dl', items), open=len(runs) == 1)])


def terms(metrics: Sequence[Mapping[str, Any]]) -> Markup:
  """A list of what the metrics of the chart and the columns of the table mean.

  >>> '<dt>train loss</dt>' in terms([{'key': 'train_loss'}])
  True
  """
  known = glossary.terms([metric['key'] for metric in metrics])
  return element('dl', [element('div', element('dt', name), element('dd', about)) for name, about in known])


def _values(runs, field):
  """The values of a field in the runs of a line, which differ at most in their seeds."""
  shown = [names.format_value(run.config[field]) if field in run.config else '–' for run in runs]
  return ', '.join(dict.fromkeys(shown))


def _table(titles, rows, **attributes):
  head = element('thead', element('tr', [element('th', title, scope='col') for title in titles]))
  body = [element('tr', element('th', name, scope='row'), [element('td', c) for c in cells]) for name, *cells in rows]
  return element('table', head, element('tbody', body), **attributes)


def partitions(runs: Sequence[Run]) -> Markup:
  """The distinct tables of examples per worker and class, each with the names of its runs.

  >>> partition = {'table': [[750, 0], [0, 750]], 'class_names': ['cat', 'dog'], 'dropped': 3}
  >>> section = partitions([Run('a', {}, (), partition=partition)])
  >>> '<td title="worker 1, dog: 750" class="h10">750</td>' in section, '3 examples dropped' in section
  (True, True)
  """
  tables: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
  for run in runs:
    if run.partition:
      tables.setdefault(series.key(run.partition), (run.partition, []))[1].append(run.name)
  parts = [element('h2', 'Examples per worker and class')] if tables else []
  for partition, runs_with_it in tables.values():
    parts += [element('h3', _listed(runs_with_it))] if len(tables) > 1 else []
    parts.append(scroll(_heat(partition), 0, 'Examples per worker and class'))
    workers, dropped = len(partition['table']), partition['dropped']
    notes = [f'The first {_MAX_WORKERS} of {workers} workers.'] if workers > _MAX_WORKERS else []
    notes += [f'{dropped} examples dropped to give all workers equal numbers.'] if dropped else []
    parts += [element('p', note, class_='soft') for note in notes]
  return escape(parts)


def _listed(words, most=3):
  return ', '.join(words[:most]) + (f' and {len(words) - most} more' if len(words) > most else '')


def _heat(partition):
  table, classes = partition['table'], partition['class_names']
  most = max(max(row) for row in table) or 1
  narrow = len(classes) > _MAX_CLASSES
  rows = []
  for worker, row in enumerate(table[:_MAX_WORKERS]):
    cells = []
    for count, name in zip(row, classes):
      shade = round(_SHADES * (count / most))
      shown = '' if narrow else f'{count:,}' if count else '·'
      cells.append(
        element('td', shown, title=f'worker {worker}, {name}: {count}', class_=f'h{shade}' if shade else None)
      )
    rows.append(element('tr', element('th', f'worker {worker}', scope='row'), cells))
  each = [element('th', name, scope='col') for name in classes]
  head = element('th', f'{len(classes)} classes', colspan=len(classes)) if narrow else each
  return element(
    'table',
    element('colgroup', element('col'), element('col', span=len(classes))),
    element('thead', element('tr', element('td'), head)),
    element('tbody', rows),
    class_='heat narrow' if narrow else 'heat',
  )


def figures(drawn: Iterable[pathlib.Path], described: Sequence[specs.Figure]) -> Markup:
  """The figures as embedded images with captions.

  >>> figures([], [])
  ''
  """
  parts = []
  for path in drawn:
    words = next((specs.describe(one) for one in described if path.stem.startswith(one.name)), path.stem)
    image = f'data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}'
    parts.append(element('figure', element('img', src=image, alt=words), element('figcaption', words)))
  return escape(parts)
