"""Draws one panel of a figure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vrl_jax.report import names, series, style
from vrl_jax.report.reference import Reference
from vrl_jax.report.specs import Figure

LOG_FLOOR = 1e-16  # of log axes: about the precision of float64
_HUGE = 1e100  # larger values overflow in matplotlib


class Panel(NamedTuple):
  """The title, x axis and lines of a panel.

  >>> Panel('k = 5', 'epoch', lines=[]).title
  'k = 5'
  """

  title: str
  x: str
  lines: list[series.Line]


def y_limits(
  panels: Sequence[Panel], figure: Figure, references: Sequence[Sequence[Reference]]
) -> tuple[float, float] | None:
  """The y range of a row of panels, or None without data; diverged runs only count if there are no others.

  >>> from vrl_jax.report.records import Run
  >>> runs = [Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 0, 'train_loss': 10.0}, {'step': 9, 'train_loss': 0.1}))]
  >>> panel = Panel('', 'step', series.make_lines(runs))
  >>> [round(float(limit), 3) for limit in y_limits([panel], Figure('loss', 'train_loss', ('step',)), [()])]
  [0.079, 12.589]
  """
  stable: list[np.ndarray] = []
  diverged: list[np.ndarray] = []
  for panel, published in zip(panels, references):
    curves = [series.curve(line.runs, panel.x, figure.y) for line in panel.lines]
    for line, curve in zip(panel.lines, curves):
      (diverged if _diverged(line) else stable).extend([curve.low, curve.high])
    if panel.x == 'epoch':
      last = max((curve.x[-1] for curve in curves if len(curve.x)), default=0)
      stable += [one.columns[figure.y][: int(last) + 1] for one in published if figure.y in one.columns]
  values = np.concatenate(stable or diverged or [np.zeros(0)])
  values = values[np.isfinite(values) & ((values > 0) | (not figure.log_y))]
  if not len(values):
    return None
  low, high = np.clip([values.min(), values.max()], -_HUGE, _HUGE)
  if not figure.log_y:
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin
  low = max(low, LOG_FLOOR)
  high = max(high, low)
  margin = max((high / low) ** 0.05, 1.1)
  return low / margin, high * margin


def draw_panel(
  ax: Axes, panel: Panel, figure: Figure, limits: tuple[float, float] | None, references: Sequence[Reference]
) -> tuple[dict[str, Line2D], set[str]]:
  """Draws the lines of a panel.

  Args:
    ax: the axes to draw on.
    panel: the lines and their x axis.
    figure: the metric and the scale of its axis.
    limits: the y range, or None.
    references: published curves.

  Returns:
    The legend handles by label, and the labels of the lines with visible points (a log axis shows no zeros).

  >>> from matplotlib.figure import Figure as Canvas
  >>> from vrl_jax.report.records import Run
  >>> runs = [Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 0.5}))]
  >>> panel = Panel('', 'step', series.make_lines(runs))
  >>> figure = Figure('loss', 'train_loss', ('step',))
  >>> handles, visible = draw_panel(Canvas().subplots(), panel, figure, limits=(0.4, 2.5), references=[])
  >>> list(handles), handles['VRL-SGD'].get_ydata().tolist()
  (['VRL-SGD'], [2.0, 0.5])
  """
  curves = [series.curve(line.runs, panel.x, figure.y) for line in panel.lines]
  ends = [curve.x[-1] for curve in curves if len(curve.x) and curve.x[-1] > 0]
  log_x = panel.x in ('communications', 'bytes_communicated') and bool(ends) and max(ends) > 4 * min(ends)
  points = sorted({x for curve in curves for x in curve.x}) if panel.x not in names.AXES else []
  log_x = log_x or (bool(points) and points[0] > 0 and points[-1] > 4 * points[0])
  ax.set_title(panel.title)
  ax.set_yscale('log' if figure.log_y else 'linear')
  ax.set_xscale('log' if log_x else 'linear')
  if limits:
    ax.set_ylim(*limits)
  handles: dict[str, Line2D] = {}
  visible: set[str] = set()
  for order, (line, curve) in enumerate(zip(panel.lines, curves)):
    curve = _within(curve, limits, figure.log_y, log_x)
    handles[line.label] = _draw_line(ax, line, curve, order / len(curves), limits)
    visible |= {line.label} if len(curve.x) or not len(curves[order].x) else set()
  if panel.x == 'epoch' and ends:
    handles |= _draw_references(ax, references, figure.y)
    ax.set_xlim(-0.03 * max(ends), 1.03 * max(ends))
  _tidy_ticks(ax, panel.x, limits if figure.log_y else None, log_x)
  if points:
    ax.set_xticks(points, [names.format_value(float(x)) for x in points])
    ax.xaxis.set_minor_locator(ticker.NullLocator())
  return handles, visible | {one.label for one in references}


def _diverged(line):
  return any(run.status == 'diverged' for run in line.runs)


def _within(curve, limits, log_y, log_x):
  """The part of a curve that can be drawn. Log axes show no zeros; a curve that falls to 0 ends at the lower limit."""
  keep = curve.x > 0 if log_x else np.ones(len(curve.x), bool)
  if log_y:
    keep &= np.logical_or.accumulate(curve.high > 0)
  if not limits:
    return series.Curve(*(values[keep] for values in curve))
  low, high = limits
  # Values far outside the panel overflow in the renderer.
  bounds = (low, high * 1e3) if log_y else (low - 9 * (high - low), high + 9 * (high - low))
  return series.Curve(curve.x[keep], *(np.clip(values[keep], *bounds) for values in curve[1:]))


def _draw_line(ax, line, curve, phase, limits):
  look = style.look(line.algorithm, line.variant, line.variants)
  stride = max(1, len(curve.x) // 7)
  (handle,) = ax.plot(
    curve.x,
    curve.mean,
    color=look.color,
    linestyle=(0, look.dashes) if look.dashes else '-',
    marker=look.marker,
    markerfacecolor='white',
    # Lines that coincide have their markers at different points.
    markevery=(min(int(phase * stride), max(0, len(curve.x) - 1)), stride),
  )
  if len(line.runs) > 1:
    ax.fill_between(curve.x, curve.low, curve.high, color=look.color, alpha=0.18, linewidth=0)
  if _diverged(line) and len(curve.x):
    x, y = _exit(curve, limits, ax.get_yscale() == 'log')
    ax.plot([x], [y], 'x', color=look.color, markersize=7, markeredgewidth=2, clip_on=False, zorder=5)
  return handle


def _exit(curve, limits, log_y):
  """The point where a curve leaves the panel, or its last point."""
  low, high = limits or (-np.inf, np.inf)
  outside = np.flatnonzero((curve.mean > high) | (curve.mean < low))
  if not len(outside):
    return curve.x[-1], curve.mean[-1]
  first = outside[0]
  edge = high if curve.mean[first] > high else low
  f = np.log if log_y else np.asarray
  before, after = f(curve.mean[max(0, first - 1)]), f(curve.mean[first])
  share = (f(edge) - before) / (after - before) if after != before else 1.0
  return curve.x[max(0, first - 1)] + share * (curve.x[first] - curve.x[max(0, first - 1)]), edge


def _draw_references(ax, references, y):
  handles = {}
  for one in references:
    if y in one.columns:
      values, color = one.columns[y], style.look(one.algorithm).color
      (handles[one.label],) = ax.plot(np.arange(len(values)), values, color=color, linewidth=0.9, linestyle=(0, (3, 2)))
  return handles


def _tidy_ticks(ax, x, log_limits, log_x):
  if x == 'bytes_communicated':
    ax.xaxis.set_major_formatter(lambda value, _: names.format_bytes(value))
  elif not log_x:
    ax.xaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(lambda value, _: f'{value:,.10g}')
  if not log_limits:
    return
  decades = np.log10(log_limits[1] / log_limits[0])
  if decades < 2:  # The powers of ten alone would give fewer than three labels.
    dense = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9) if decades <= 0.5 else (1, 1.5, 2, 3, 4, 5, 7)
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if decades > 1 else dense))
    ax.yaxis.set_major_formatter(lambda value, _: f'{value:g}')
    ax.yaxis.set_minor_locator(ticker.NullLocator())
  else:
    ax.yaxis.set_major_locator(ticker.LogLocator(numticks=6))
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())
