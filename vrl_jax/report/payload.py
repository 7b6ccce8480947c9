"""The numbers behind the page's chart, as small JSON."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vrl_jax.report import names, series, specs, style
from vrl_jax.report.records import Sweep
from vrl_jax.report.reference import Reference, fitting

_MOST_POINTS = 400  # More would not be seen on a screen.


def payload(sweep: Sweep, references: Sequence[Reference] = ()) -> dict[str, Any]:
  """What `chart.js` draws from: metrics, axes, the fields to choose by, the lines, and what to show first.

  >>> from vrl_jax.report.records import Run
  >>> run = Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 0.5}))
  >>> data = payload(Sweep('one run', (run,)))
  >>> data['lines'][0]['label'], data['lines'][0]['y']['train_loss']
  ('VRL-SGD', {'x': {'step': [0.0, 9.0]}, 'mean': [2.0, 0.5]})
  """
  runs = sweep.runs
  fields = series.facets(runs)
  lines = series.make_lines(runs, fields)
  metrics = [key for key in names.METRICS if any(np.isfinite(run.column(key)).any() for run in runs)]
  axes = [key for key in names.AXES if any(np.isfinite(run.column(key)).any() for run in runs)]
  first = next((one for one in specs.figures(sweep, None) if one.y in metrics and one.x[0] in axes), None)
  return {
    'first': {'y': first.y, 'x': first.x[0]} if first else {},
    'metrics': [{'key': key, 'label': names.quantity(key), 'log': specs.is_log(key)} for key in metrics],
    'axes': [{'key': key, 'label': names.AXES[key]} for key in axes],
    'facets': [_facet(runs, field) for field in fields],
    'lines': [_line(line, fields, metrics, axes) for line in lines]
    + [published for one in fitting(references, runs) for published in _published(one, fields, runs)],
  }


def _facet(runs, field):
  values = {series.key(run.setting(field)): run.setting(field) for run in runs if not series.is_free(run, field)}
  numbers = all(isinstance(value, (int, float)) for value in values.values())
  order = sorted(values, key=values.get) if numbers else list(values)
  return {
    'label': names.FIELDS.get(field, field),
    'values': [{'key': key, 'label': names.plain(values[key])} for key in order],
  }


def _line(line, fields, metrics, axes):
  curves = {y: {x: series.curve(line.runs, x, y) for x in axes} for y in metrics}
  shown = style.look(line.algorithm, line.variant, line.variants)
  return _look(shown) | {
    'label': line.label,
    # S-SGD stands in every period's comparison.
    'place': [
      None if series.is_free(line.runs[0], field) else series.key(line.runs[0].setting(field)) for field in fields
    ],
    'seeds': len(line.runs),
    'diverged': any(run.status == 'diverged' for run in line.runs),
    'y': {
      y: _points(by_axis, len(line.runs) > 1)
      for y, by_axis in curves.items()
      if any(len(c.x) for c in by_axis.values())
    },
  }


def _points(by_axis, band):
  """One list per axis, then mean, low and high; a metric's own points, so that rare ones survive the thinning."""
  full = next(curve for curve in by_axis.values() if len(curve.x))
  # An axis that some log points lack would fall out of step with the others.
  axes = {x: curve for x, curve in by_axis.items() if len(curve.x) == len(full.x)}
  count = len(full.x)
  picks = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).round().astype(int))
  points = {'x': {x: _short(curve.x[picks]) for x, curve in axes.items()}, 'mean': _short(full.mean[picks])}
  return points | ({'low': _short(full.low[picks]), 'high': _short(full.high[picks])} if band else {})


def _published(one, fields, runs):
  """A published curve, once for each partition where it belongs if the runs differ in that."""
  partitions = {series.key(run.setting('partition')): run.setting('partition') for run in runs}
  belongs = [key for key, value in partitions.items() if one.identical in (None, value == 'identical')]
  epochs = list(range(len(one.columns['train_loss'])))
  line = {
    'label': one.label,
    'color': style.look(one.algorithm).color,
    'dashes': [3, 2],
    'marker': None,
    'published': True,
    'y': {key: {'x': {'epoch': epochs}, 'mean': _short(values)} for key, values in one.columns.items()},
  }
  if 'partition' not in fields or not belongs:
    return [line | {'place': None}]
  return [line | {'place': [key if field == 'partition' else None for field in fields]} for key in belongs]


def _look(look):
  return {'color': look.color, 'dashes': list(look.dashes), 'marker': look.marker}


def _short(values):
  return [float(f'{value:.5g}') if math.isfinite(value) else None for value in values]


def as_script(value: Any) -> str:
  """JSON that may stand inside a script element.

  >>> as_script({'label': '</script>'})
  '{"label":"\\\\u003c/script>"}'
  """
  return json.dumps(value, separators=(',', ':'), ensure_ascii=False, allow_nan=False).replace('<', '\\u003c')
