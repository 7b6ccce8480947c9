"""Draws comparison figures with matplotlib, without changing its global state."""

import json
import os
import pathlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from vrl_jax.report import field_axis, names, series, specs, style
from vrl_jax.report.heatmap import draw_map
from vrl_jax.report.panel import Panel, draw_panel, y_limits
from vrl_jax.report.records import Run, Sweep, flat_runs
from vrl_jax.report.reference import Reference, fitting
from vrl_jax.system.storage import expand_home

_MAX_COLUMNS = 4


def comparison_figure(
  runs: Sweep | Sequence[Run],
  path: str | os.PathLike,
  spec: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
  reference: Iterable[Reference] = (),
) -> list[pathlib.Path]:
  """Draws figures that compare runs: one line per algorithm, with a band if there are several seeds.

  Args:
    runs: a sweep, or runs.
    path: an image file, whose suffix gives the format, or a directory for `<name>.png` and `<name>.svg`. If there are
      several figures, their names are appended to the stem of the image file.
    spec: one or several specs, such as `{"name": "loss", "y": "train_loss", "x": ["epoch", "communications"],
      "panels": ["b", "period"], "log_y": true}`; by default those of the sweep, or else one figure per metric. If x is
      a config field, such as the period, each run becomes a point: the mean of y over its second half. With a second
      config field as `against` the figure is a heat map: the colour is the final y, and a cross marks a run that
      diverged.
    reference: published curves, drawn as thin dashed lines if x is the epoch.

  Returns:
    The paths of the written files.

  >>> import tempfile
  >>> points = tuple({'step': t, 'epoch': t / 10, 'train_loss': 1 / (1 + t)} for t in range(5))
  >>> runs = [Run(name, {'algorithm': name}, points) for name in ('s_sgd', 'vrl_sgd')]
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   [path.name for path in comparison_figure(runs, folder, {'name': 'loss', 'y': 'train_loss', 'x': 'epoch'})]
  ['loss.png', 'loss.svg']
  """
  path = expand_home(path, 'path')
  jobs = []
  for figure in specs.figures(runs, spec):
    # A grid of panels has one x axis: each further one is another figure.
    split = (
      [figure]
      if not figure.panels or len(figure.x) == 1
      else [figure._replace(name=f'{figure.name}-{x}', x=(x,)) for x in figure.x]
    )
    jobs += split
  written = []
  for job in jobs:
    file = path.with_name(f'{path.stem}-{job.name}{path.suffix}') if len(jobs) > 1 else path
    targets = [file] if path.suffix else [path / f'{job.name}.{kind}' for kind in ('png', 'svg')]
    targets[0].parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(style.RC), np.errstate(over='ignore'), warnings.catch_warnings():
      warnings.filterwarnings('ignore', 'Glyph .* missing')  # the page shows such a title with the fonts of the browser
      canvas = draw(flat_runs(runs), job, tuple(reference))
      for target in targets:
        canvas.savefig(target, dpi=style.DPI, metadata=_without_date(target))
    written += targets
  return written


def plot(runs: Sweep | Sequence[Run], y: str, x: str | Sequence[str]) -> Canvas:
  """Draws a metric of runs: one line per algorithm, with a band if there are several seeds.

  Args:
    runs: a sweep, or runs.
    y: the metric.
    x: the quantities on the x axes, one panel each.

  >>> run = Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 0.5}))
  >>> [axes.get_xlabel() for axes in plot([run], 'train_loss', 'step').axes]
  ['iterations']
  """
  (figure,) = specs.figures(runs, {'y': y, 'x': x})
  with mpl.rc_context(style.RC), np.errstate(over='ignore'):
    return draw(flat_runs(runs), figure)


def draw(runs: Sequence[Run], figure: specs.Figure, reference: Sequence[Reference] = ()) -> Canvas:
  """Draws one figure and returns it as a matplotlib figure. Call it within `rc_context(style.RC)`.

  >>> runs = [Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 0.5}))]
  >>> with mpl.rc_context(style.RC):
  ...   (axes,) = draw(runs, specs.Figure('loss', 'train_loss', ('step',))).axes
  >>> axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()
  ('iterations', 'train loss', 'log')
  """
  canvas = draw_map(runs, figure) if figure.against else _draw_panels(runs, figure, reference)
  _show_text_as_it_is(canvas)
  return canvas


def _show_text_as_it_is(canvas):
  """Turns off mathtext, in which `$x^{$` is an error, for all texts but tick labels: those of log axes need it."""
  legends = [text for legend in canvas.legends for text in legend.get_texts()]
  labels = [text for ax in canvas.axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
  for text in (*canvas.texts, *legends, *labels):
    text.set_parse_math(False)


def _draw_panels(runs, figure, reference):
  if field_axis.is_numeric_field(runs, figure.x[0]):
    runs = field_axis.join_along_field(runs, figure.x[0], figure.y)
  panels, columns = _panels(runs, figure)
  rows = -(-len(panels) // columns)
  height = (2.75 if columns <= 2 else 2.3 if columns == 3 else 1.75) * rows + 0.55
  canvas = Canvas(figsize=(style.WIDTH if columns > 1 else 0.7 * style.WIDTH, height), layout='constrained')
  axes = canvas.subplots(rows, columns, squeeze=False)
  handles: dict[str, Line2D] = {}
  visible: set[str] = set()
  for row in range(rows):
    here = panels[row * columns : (row + 1) * columns]
    fits = [fitting(reference, [run for line in panel.lines for run in line.runs]) for panel in here]
    limits = y_limits(here, figure, fits)
    for column, ax in enumerate(axes[row]):
      if column >= len(here):
        ax.set_axis_off()
        continue
      of_panel, visible_in_panel = draw_panel(ax, here[column], figure, limits, fits[column])
      handles |= of_panel
      visible |= visible_in_panel
      bottom = row * columns + column + columns >= len(panels)
      ax.set_xlabel(names.quantity(here[column].x) if bottom else '')
      ax.set_ylabel(names.quantity(figure.y) if column == 0 else '')
      ax.tick_params(labelleft=column == 0, labelbottom=bottom)
  if figure.title:
    canvas.suptitle(figure.title)
  if len(handles) > 1:
    longest = max(map(len, handles))
    per_row = max(1, int((12.5 if columns > 1 else 8.5) * 9 / (longest + 7)))
    ncols = -(-len(handles) // -(-len(handles) // per_row))  # rows of equal length
    labels = [label if label in visible else f'{label} (0 throughout)' for label in handles]
    canvas.legend(list(handles.values()), labels, loc='outside lower center', ncols=ncols, handlelength=3.2)
  return canvas


def _panels(runs, figure):
  lines = series.make_lines(runs, figure.panels)
  if not figure.panels:
    return [Panel('', x, lines) for x in figure.x], len(figure.x)
  rows, columns = figure.panels[:1], figure.panels[1:]
  cells = [(row, column) for row in _values(runs, rows) for column in _values(runs, columns)]
  panels = []
  for row, column in cells:
    title = ', '.join(names.setting(field, json.loads(v)) for field, v in zip(figure.panels, (*row, *column)))
    panels.append(Panel(title, figure.x[0], series.lines_at(lines, figure.panels, (*row, *column))))
  wide = len(_values(runs, columns)) if columns else min(len(panels), _MAX_COLUMNS)
  return panels, wide


def _values(runs, fields):
  """The sorted values of the fields for which there is a panel. S-SGD's period gives none unless all runs are S-SGD."""
  found = {series.field_keys(run, fields) for run in runs if run.algorithm != 's_sgd'}
  found = found or {series.field_keys(run, fields) for run in runs}
  order = lambda keys: [(not isinstance(json.loads(key), (int, float)), json.loads(key), key) for key in keys]
  try:
    return sorted(found, key=order)
  except TypeError:  # values of several types
    return sorted(found)


def _without_date(path):
  return {'.svg': {'Date': None}, '.pdf': {'CreationDate': None}}.get(path.suffix)
