"""One self-contained HTML page with an interactive chart, tables and figures; it loads nothing from the network."""

import base64
import dataclasses
import hashlib
import importlib.resources
import os
import pathlib
import string
from collections.abc import Iterable, Sequence

from vrl_jax import errors
from vrl_jax.report import figures, names, sections, series, specs
from vrl_jax.report.chart_data import as_script, chart_data
from vrl_jax.report.markup import Markup, escape
from vrl_jax.report.records import Sweep
from vrl_jax.report.reference import Reference, read_reference
from vrl_jax.report.runs import read_any
from vrl_jax.report.tables import comparison_table
from vrl_jax.system.storage import expand_home


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

  Raises:
    UserError: a run or a figure spec is invalid. The report of the other runs, or with the default figures, has then
      been written all the same.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   _ = pathlib.Path(folder, 'config.json').write_text('{"algorithm": "vrl_sgd"}')
  ...   _ = pathlib.Path(folder, 'metrics.jsonl').write_text('{"step": 8, "train_loss": 0.5}')
  ...   {name: path.name for name, path in write_report(folder).items()}
  {'report': 'report.html', 'loss': 'loss.png'}
  """
  folders = [folder] if isinstance(folder, (str, os.PathLike)) else list(folder)
  output = expand_home(output or (folders[0] if len(folders) == 1 else 'report'), 'output')
  sweep = sweep or read_any(folders, skip_unreadable=True)
  references = [one if isinstance(one, Reference) else read_reference(one) for one in reference]
  sweep, problems = _drawable(sweep)
  try:
    output.mkdir(parents=True, exist_ok=True)
    drawn = figures.comparison_figure(sweep, output / 'figures', reference=references)
    drawn = [path for path in drawn if path.suffix == '.png']
    page = output / 'report.html'
    page.write_text(render(sweep, references, drawn, title), encoding='utf-8')
  except OSError as error:
    raise errors.UserError(f'{output}: cannot write the report ({error})') from None
  if problems:
    raise problems[0]
  return {'report': page} | {path.stem: path for path in drawn}


def _drawable(sweep: Sweep) -> tuple[Sweep, list[errors.UserError]]:
  """The sweep with the default figures if its own are invalid, and what is wrong with it."""
  problems: list[errors.UserError] = []
  if sweep.unreadable:
    lost = len(sweep.unreadable)
    lacks = 'this run' if lost == 1 else f'{lost} runs that cannot be read'
    problems.append(errors.DataError(f'{sweep.unreadable[0]}; the report lacks {lacks}'))
  try:
    specs.figures(sweep, None)
  except errors.UserError as error:
    sweep = dataclasses.replace(sweep, figures=())
    problems.append(type(error)(f'{error}; the report has the default figures'))
  return sweep, problems


def render(
  sweep: Sweep, references: Sequence[Reference] = (), drawn: Iterable[pathlib.Path] = (), title: str | None = None
) -> str:
  """The HTML of the page.

  >>> from vrl_jax.report.records import Run
  >>> run = Run('a', {'algorithm': 'vrl_sgd', 'period': 5}, ({'step': 8, 'train_loss': 0.5},))
  >>> page = render(Sweep('Local & VRL', (run,)))
  >>> '<h1>Local &amp; VRL</h1>' in page, 'src="http' in page
  (True, False)
  """
  style, script = _file('page.css'), Markup(_file('chart.js') + _file('controls.js'))
  data = chart_data(sweep, references)
  parts = {
    'policy': _policy(style, script),
    'title': names.printable(title or sweep.title),
    'about': _about(sweep),
    'style': style,
    'data': as_script(data),
    'table': sections.scroll(comparison_table(sweep, 'html'), len(series.group_seeds(sweep.runs)), 'Final metrics'),
    'terms': sections.terms(data['metrics']),
    'partitions': sections.partitions(sweep.runs),
    'settings': sections.settings(sweep.runs),
    'figures': sections.figures(drawn, specs.figures(sweep, None)),
    'script': script,
  }
  return string.Template(_file('page.html')).substitute({name: escape(part) for name, part in parts.items()})


def _file(name):
  return Markup((importlib.resources.files('vrl_jax.report') / name).read_text(encoding='utf-8'))


def _policy(style, script):
  """The content security policy: the page's own style and script, by their hashes, and embedded images."""
  source = lambda text: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
  allowed = {'style-src': source(style), 'script-src': source(script), 'img-src': 'data:'}
  denied = dict.fromkeys(('default-src', 'base-uri', 'form-action'), "'none'")
  return '; '.join(f'{directive} {value}' for directive, value in (denied | allowed).items())


def _about(sweep):
  count = len(sweep.runs)
  shown = {field: _values(sweep.runs, field) for field in ('task', 'dataset', 'partition', 'workers')}
  parts = [shown['task']]
  parts += [f'{word}: {shown[field]}' for field, word in _WORDS.items() if shown[field]]
  parts += [f'{shown["workers"]} workers'] if shown['workers'] else []
  parts += [f'{count} run{"s" if count > 1 else ""}']
  seeds = {series.key(run.config.get('seed')) for run in sweep.runs}
  parts += [f'{len(seeds)} seeds'] if len(seeds) > 1 else []
  parts += [f'missing: {", ".join(sweep.missing)}'] if sweep.missing else []
  parts += [f'not readable: {message}' for message in sweep.unreadable]
  return ' · '.join(part for part in parts if part)


_WORDS = {'dataset': 'data', 'partition': 'partition'}


def _values(runs, field):
  values = [run.setting(field) for run in runs]
  return ', '.join(dict.fromkeys(names.format_value(value) for value in values if value is not None))
