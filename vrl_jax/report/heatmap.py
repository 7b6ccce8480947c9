"""Heat maps of the final metric over two config fields, with a panel for each algorithm and setting."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas

from vrl_jax.report import names, series, specs, style
from vrl_jax.report.records import Run

_COLORS = 'cividis'  # dark is low; safe for colour-blind readers and in grey print
_DIVERGED = '#f2f2f2'
_DECADES = 6  # range of the colours, below the highest initial value


def diverged(run: Run, y: str) -> bool:
  """Whether a run has the status `diverged`, or a final value of the metric above its initial one.

  >>> diverged(Run('a', {}, ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 3.0})), 'train_loss')
  True
  """
  values = run.column(y)
  return run.status == 'diverged' or not bool(values[-1] <= values[0])  # also true for a NaN


def draw_map(runs: Sequence[Run], figure: specs.Figure) -> Canvas:
  """Draws the final `figure.y` as colour over `figure.x` and `figure.against`, with crosses for runs that diverged.

  There is a column of panels for each algorithm and a row for each value of the first of `figure.panels`. Call it
  within `rc_context(style.RC)`.

  >>> lines = ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 0.5})
  >>> runs = [Run(str(k), {'algorithm': 'vrl_sgd', 'period': k, 'b': 1.0}, lines) for k in (2, 4)]
  >>> with mpl.rc_context(style.RC):
  ...   canvas = draw_map(runs, specs.Figure('map', 'train_loss', ('period',), against='b'))
  >>> canvas.axes[0].images[0].get_array().tolist()
  [[0.5, 0.5]]
  """
  (x,), y = figure.x, figure.against
  if y is None:
    raise ValueError('a heat map needs a figure with a second config field, `against`')
  rows = _values(runs, figure.panels[0]) if figure.panels else [None]
  algorithms = list(dict.fromkeys(run.algorithm for run in runs))
  x_values, y_values = _values(runs, x), _values(runs, y)
  initial = [run.column(figure.y)[0] for run in runs]
  worst = max((value for value in initial if 0 < value < np.inf), default=1.0)
  norm = LogNorm(worst * 10.0**-_DECADES, worst, clip=True)
  size = (min(style.WIDTH, 1.3 + 2.6 * len(algorithms)), 0.6 + 1.75 * len(rows))
  canvas = Canvas(figsize=size, layout='constrained')
  axes = canvas.subplots(len(rows), len(algorithms), squeeze=False, sharex=True, sharey=True)
  for axes_of_row, row in zip(axes, rows):
    for ax, algorithm in zip(axes_of_row, algorithms):
      grid, crosses = np.full((len(y_values), len(x_values)), np.nan), []
      for run in runs:
        if run.algorithm != algorithm or (figure.panels and run.setting(figure.panels[0]) != row):
          continue
        cell = y_values.index(run.setting(y)), x_values.index(run.setting(x))
        if diverged(run, figure.y):
          crosses.append(cell)
        else:
          grid[cell] = run.final(figure.y)
      ax.set_facecolor(_DIVERGED)
      image = ax.imshow(grid, cmap=mpl.colormaps[_COLORS], norm=norm, origin='lower', aspect='auto')
      if crosses:
        ax.plot([c for _, c in crosses], [r for r, _ in crosses], 'x', color='#333333', markersize=5, clip_on=False)
      ax.grid(False)
      ax.set_xticks(range(len(x_values)), map(_tick, x_values))
      ax.set_yticks(range(len(y_values)), map(_tick, y_values))
      setting = '' if row is None else f', {names.setting(figure.panels[0], row)}'
      ax.set_title(f'{names.algorithm(algorithm)}{setting}')
  for ax in axes[-1]:
    ax.set_xlabel(names.quantity(x))
  for ax in axes[:, 0]:
    ax.set_ylabel(names.quantity(y))
  canvas.colorbar(image, ax=axes, label=f'final {names.quantity(figure.y)}; × diverged', extend='min')
  if figure.title:
    canvas.suptitle(figure.title)
  return canvas


def _tick(value):
  return names.format_value(value).replace('$', r'\$')  # no mathtext


def _values(runs, field):
  return series.ordered({series.key(run.setting(field)): run.setting(field) for run in runs}.values())
