"""Draws comparisons with matplotlib, leaving its global state alone."""

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from vrl_jax.report import along, names, series, specs, style
from vrl_jax.report.heat import draw_map
from vrl_jax.report.panel import Panel, draw_panel, y_limits
from vrl_jax.report.records import Run, Sweep, flat_runs
from vrl_jax.report.reference import Reference, fitting

_MOST_COLUMNS = 4


def comparison_figure(
  runs: Sweep | Sequence[Run],
  path,
  spec: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
  reference: Iterable[Reference] = (),
) -> list[pathlib.Path]:
  """Draws runs beside each other: one line per algorithm, bands where there are several seeds.

  Args:
    runs: a sweep, or runs.
    path: an image file (the suffix chooses the format), or a folder for `<name>.png` and `<name>.svg`. Several figures
      to one file name get their own names added to it.
    spec: what to draw, one or several of `{"name": "loss", "y": "train_loss", "x": ["epoch", "communications"],
      "panels": ["b", "period"], "log_y": true}`; the sweep's own if not given, else one figure per metric. Where x is
      a config field, such as the period, a run is a point: the mean of y over its second half. With another field as
      `against` it is a map: the colour is the last y, and what diverged is crossed out.
    reference: published curves, drawn thin and dashed where x is the epoch.

  Returns:
    The files written.

  >>> import tempfile
  >>> points = tuple({'step': t, 'epoch': t / 10, 'train_loss': 1 / (1 + t)} for t in range(5))
  >>> runs = [Run(name, {'algorithm': name}, points) for name in ('s_sgd', 'vrl_sgd')]
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   [path.name for path in comparison_figure(runs, folder, {'name': 'loss', 'y': 'train_loss', 'x': 'epoch'})]
  ['loss.png', 'loss.svg']
  """
  path = pathlib.Path(path)
  jobs = []
  for figure in specs.figures(runs, spec):
    # A grid has room for one x only.
    split = (
      [figure]
      if not figure.panels or len(figure.x) == 1
      else [figure._replace(name=f'{figure.name}-{x}', x=(x,)) for x in figure.x]
    )
    jobs += split
  written = []
  for job in jobs:
    own = path.with_name(f'{path.stem}-{job.name}{path.suffix}') if len(jobs) > 1 else path
    targets = [own] if path.suffix else [path / f'{job.name}.{kind}' for kind in ('png', 'svg')]
    targets[0].parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(style.RC):
      drawing = draw(flat_runs(runs), job, tuple(reference))
      for target in targets:
        drawing.savefig(target, dpi=style.DPI, metadata=_no_date(target))
    written += targets
  return written


def draw(runs: Sequence[Run], figure: specs.Figure, reference: Sequence[Reference] = ()) -> Canvas:
  """One figure as a matplotlib object; call it within `rc_context(style.RC)`.

  >>> runs = [Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 0.5}))]
  >>> with mpl.rc_context(style.RC):
  ...   (axes,) = draw(runs, specs.Figure('loss', 'train_loss', ('step',))).axes
  >>> axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()
  ('iterations', 'train loss', 'log')
  """
  if figure.against:
    return draw_map(runs, figure)
  if along.is_field(runs, figure.x[0]):
    runs = along.regroup(runs, figure.x[0], figure.y)
  panels, columns = _panels(runs, figure)
  rows = -(-len(panels) // columns)
  height = (2.75 if columns <= 2 else 2.3 if columns == 3 else 1.75) * rows + 0.55
  canvas = Canvas(figsize=(style.WIDTH if columns > 1 else 0.7 * style.WIDTH, height), layout='constrained')
  axes = canvas.subplots(rows, columns, squeeze=False)
  handles, drawn = {}, set()
  for row in range(rows):
    here = panels[row * columns : (row + 1) * columns]
    fits = [fitting(reference, [run for line in panel.lines for run in line.runs]) for panel in here]
    limits = y_limits(here, figure, fits)
    for column, ax in enumerate(axes[row]):
      if column >= len(here):
        ax.set_axis_off()
        continue
      more, visible = draw_panel(ax, here[column], figure, limits, fits[column])
      handles |= more
      drawn |= visible
      bottom = row * columns + column + columns >= len(panels)
      ax.set_xlabel(names.quantity(here[column].x) if bottom else '')
      ax.set_ylabel(names.quantity(figure.y) if column == 0 else '')
      ax.tick_params(labelleft=column == 0, labelbottom=bottom)
  if figure.title:
    canvas.suptitle(figure.title)
  if len(handles) > 1:
    longest = max(map(len, handles))
    fit = max(1, int((12.5 if columns > 1 else 8.5) * 9 / (longest + 7)))
    ncols = -(-len(handles) // -(-len(handles) // fit))  # Rows of equal length.
    labels = [label if label in drawn else f'{label} (0 throughout)' for label in handles]
    canvas.legend(handles.values(), labels, loc='outside lower center', ncols=ncols, handlelength=3.2)
  return canvas


def _panels(runs, figure):
  lines = series.make_lines(runs, figure.panels)
  if not figure.panels:
    return [Panel('', x, lines) for x in figure.x], len(figure.x)
  rows, columns = figure.panels[:1], figure.panels[1:]
  places = [(row, column) for row in _values(runs, rows, columns) for column in _values(runs, columns, rows)]
  panels = []
  for row, column in places:
    title = ', '.join(names.setting(field, json.loads(v)) for field, v in zip(figure.panels, (*row, *column)))
    panels.append(Panel(title, figure.x[0], series.lines_at(lines, figure.panels, (*row, *column))))
  wide = len(_values(runs, columns, rows)) if columns else min(len(panels), _MOST_COLUMNS)
  return panels, wide


def _values(runs, fields, others):
  """The places that lines other than S-SGD's occupy, in order; S-SGD's own period makes no panel."""
  places = {series.place(run, fields) for run in runs if run.algorithm != 's_sgd'}
  places = places or {series.place(run, fields) for run in runs}
  order = lambda place: [(not isinstance(json.loads(v), (int, float)), json.loads(v), v) for v in place]
  try:
    return sorted(places, key=order)
  except TypeError:  # Values of several types.
    return sorted(places)


def _no_date(path):
  return {'.svg': {'Date': None}, '.pdf': {'CreationDate': None}}.get(path.suffix)
