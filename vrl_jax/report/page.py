"""One self-contained HTML page with an interactive chart, tables and figures; it loads nothing from the network."""

import base64
import html
import importlib.resources
import os
import pathlib
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vrl_jax import errors
from vrl_jax.report import figures, names, series, specs
from vrl_jax.report.chart_data import as_script, chart_data
from vrl_jax.report.records import Run, Sweep
from vrl_jax.report.reference import Reference, read_reference
from vrl_jax.report.runs import read_any
from vrl_jax.report.tables import comparison_table

_MAX_ROWS = 20  # of a table without a scroll bar
_MAX_CLASSES = 30  # of a partition table with numbers in its cells
_MAX_WORKERS = 32  # of a partition table: 512 workers with 200 classes are 19 MB


def write_report(
  folder: str | os.PathLike | Sequence[str | os.PathLike],
  reference: Iterable[str | os.PathLike | Reference] = (),
  title: str | None = None,
  output: str | os.PathLike | None = None,
  sweep: Sweep | None = None,
) -> dict[str, pathlib.Path]:
  """Writes `report.html` and the figures of one or several runs or sweeps.

  Args:
    folder: a run or sweep directory, or several.
    reference: published curves, as CSV files or as returned by `read_reference`.
    title: the heading of the page; by default the title of the sweep.
    output: the output directory; by default `folder`, or `report` if several are given.
    sweep: the runs, if they have already been read from `folder`.

  Returns:
    The path of the page as `report`, and that of each figure's PNG under the figure's name; an SVG is written next to
    each PNG.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   _ = pathlib.Path(folder, 'config.json').write_text('{"algorithm": "vrl_sgd"}')
  ...   _ = pathlib.Path(folder, 'metrics.jsonl').write_text('{"step": 8, "train_loss": 0.5}')
  ...   {name: path.name for name, path in write_report(folder).items()}
  {'report': 'report.html', 'loss': 'loss.png'}
  """
  folders = [folder] if isinstance(folder, (str, os.PathLike)) else list(folder)
  output = pathlib.Path(output or (folders[0] if len(folders) == 1 else 'report'))
  sweep = sweep or read_any(folders)
  references = [one if isinstance(one, Reference) else read_reference(one) for one in reference]
  try:
    output.mkdir(parents=True, exist_ok=True)
    drawn = figures.comparison_figure(sweep, output / 'figures', reference=references)
    drawn = [path for path in drawn if path.suffix == '.png']
    page = output / 'report.html'
    page.write_text(render(sweep, references, drawn, title), encoding='utf-8')
  except OSError as error:
    raise errors.UserError(f'{output}: cannot write the report ({error})') from None
  return {'report': page} | {path.stem: path for path in drawn}


def render(
  sweep: Sweep, references: Sequence[Reference] = (), drawn: Iterable[pathlib.Path] = (), title: str | None = None
) -> str:
  """The HTML of the page.

  >>> run = Run('a', {'algorithm': 'vrl_sgd', 'period': 5}, ({'step': 8, 'train_loss': 0.5},))
  >>> page = render(Sweep('Local & VRL', (run,)))
  >>> '<h1>Local &amp; VRL</h1>' in page, 'src="http' in page
  (True, False)
  """
  files = importlib.resources.files('vrl_jax.report')
  script = ''.join((files / name).read_text(encoding='utf-8') for name in ('chart.js', 'controls.js'))
  template = string.Template((files / 'page.html').read_text(encoding='utf-8'))
  return template.substitute(
    title=html.escape(title or sweep.title),
    about=html.escape(_about(sweep)),
    style=(files / 'page.css').read_text(encoding='utf-8'),
    data=as_script(chart_data(sweep, references)),
    table=_scroll(comparison_table(sweep, 'html'), len(series.group_seeds(sweep.runs)), 'Final metrics'),
    partitions=_partitions(sweep.runs),
    settings=_settings(sweep.runs),
    figures=_figures(drawn, specs.figures(sweep, None)),
    script=script,
  )


def _about(sweep):
  tasks = dict.fromkeys(str(run.config['task']) for run in sweep.runs if run.config.get('task'))
  count = len(sweep.runs)
  parts = [', '.join(tasks), f'{count} run{"s" if count > 1 else ""}']
  seeds = {series.key(run.config.get('seed')) for run in sweep.runs}
  parts += [f'{len(seeds)} seeds'] if len(seeds) > 1 else []
  parts += [f'missing: {", ".join(sweep.missing)}'] if sweep.missing else []
  return ' · '.join(part for part in parts if part)


def _scroll(table, rows, label):
  long = ' long' if rows > _MAX_ROWS else ''
  return f'<div class="scroll{long}" tabindex="0" role="region" aria-label="{html.escape(label)}">{table}</div>'


def _settings(runs):
  fields = series.differing_fields(runs)
  common = {field: value for run in runs for field, value in run.config.items() if field not in fields}
  parts = []
  if fields:
    head = ''.join(f'<th scope="col">{html.escape(field)}</th>' for field in ('run', *fields))
    rows = ''
    for run in runs:
      cells = ''.join(f'<td>{_value(run, field)}</td>' for field in fields)
      rows += f'<tr><th scope="row">{html.escape(run.name)}</th>{cells}</tr>\n'
    table = f'<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>'
    parts.append(_scroll(table, len(runs), 'Settings that differ'))
  items = ''.join(
    f'<div><dt>{html.escape(field)}</dt><dd>{html.escape(names.format_value(value))}</dd></div>\n'
    for field, value in sorted(common.items())
    if field.split('.')[0] not in ('sweep', 'figure', 'seeds')
  )
  kind, summary = ('', 'Common settings') if len(runs) > 1 else (' open', 'Settings of the run')
  return '\n'.join([*parts, f'<details{kind}><summary>{summary}</summary><dl>\n{items}</dl></details>'])


def _value(run, field):
  return html.escape(names.format_value(run.config[field])) if field in run.config else '–'


def _partitions(runs: Sequence[Run]) -> str:
  """The distinct tables of examples per worker and class, each with the names of its runs."""
  tables: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
  for run in runs:
    if run.partition:
      tables.setdefault(series.key(run.partition), (run.partition, []))[1].append(run.name)
  parts = []
  for partition, runs_with_it in tables.values():
    heading = '' if len(tables) == 1 else f'<h3>{html.escape(_listed(runs_with_it))}</h3>\n'
    dropped = (
      f'<p class="soft">{partition["dropped"]} examples dropped to give all workers equal numbers.</p>'
      if partition['dropped']
      else ''
    )
    workers = len(partition['table'])
    shown = f'<p class="soft">The first {_MAX_WORKERS} of {workers} workers.</p>' if workers > _MAX_WORKERS else ''
    parts.append(heading + _scroll(_heat(partition), 0, 'Examples per worker and class') + shown + dropped)
  return '<h2>Examples per worker and class</h2>\n' + '\n'.join(parts) if parts else ''


def _listed(words, most=3):
  return ', '.join(words[:most]) + (f' and {len(words) - most} more' if len(words) > most else '')


def _heat(partition):
  table, classes = partition['table'], partition['class_names']
  most = max(max(row) for row in table) or 1
  narrow = len(classes) > _MAX_CLASSES
  rows = ''
  for worker, row in enumerate(table[:_MAX_WORKERS]):
    cells = ''
    for count, name in zip(row, classes):
      share = count / most
      color = f'background:rgb({255 - 255 * share:.0f},{255 - 141 * share:.0f},{255 - 77 * share:.0f})'
      ink = ';color:#fff' if share > 0.55 else ''
      tip = html.escape(f'worker {worker}, {name}: {count}')
      cells += f'<td style="{color}{ink}" title="{tip}">{"" if narrow else f"{count:,}" if count else "·"}</td>'
    rows += f'<tr><th scope="row">worker {worker}</th>{cells}</tr>\n'
  head = ''.join(f'<th scope="col">{html.escape(name)}</th>' for name in classes)
  head = f'<th colspan="{len(classes)}">{len(classes)} classes</th>' if narrow else head
  kind = 'heat narrow' if narrow else 'heat'
  widths = f'<colgroup><col><col span="{len(classes)}"></colgroup>'
  return f'<table class="{kind}">{widths}<thead><tr><td></td>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>'


def _figures(drawn, described):
  parts = []
  for path in drawn:
    words = next((specs.describe(one) for one in described if path.stem.startswith(one.name)), path.stem)
    image = base64.b64encode(path.read_bytes()).decode()
    parts.append(
      f'<figure><img src="data:image/png;base64,{image}" alt="{html.escape(words)}">'
      f'<figcaption>{html.escape(words)}</figcaption></figure>'
    )
  return '\n'.join(parts)
