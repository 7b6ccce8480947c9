"""The data of the interactive chart, as compact JSON."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vrl_jax.report import glossary, names, series, specs, style
from vrl_jax.report.markup import Markup
from vrl_jax.report.records import Sweep
from vrl_jax.report.reference import Reference, fitting

_MAX_POINTS = 400  # per line; more cannot be seen on a screen


def chart_data(sweep: Sweep, references: Sequence[Reference] = ()) -> dict[str, Any]:
  """The data that `chart.js` and `controls.js` read.

  Args:
    sweep: the runs.
    references: published curves to add.

  Returns:
    The metrics, the x axes, the fields to choose from (facets), the lines, and the quantities to show first.

  >>> from vrl_jax.report.records import Run
  >>> run = Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 0, 'train_loss': 2.0}, {'step': 9, 'train_loss': 0.5}))
  >>> data = chart_data(Sweep('one run', (run,)))
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
    'metrics': [_quantity(key) | {'log': specs.is_log(key)} for key in metrics],
    'axes': [_quantity(key) for key in axes],
    'facets': [_facet(runs, field) for field in fields],
    'lines': [_line(line, fields, metrics, axes) for line in lines]
    + [line for one in fitting(references, runs) for line in _published_lines(one, fields, runs)],
  }


def _quantity(key):
  return {'key': key, 'label': names.quantity(key), 'about': glossary.about(key)}


def _facet(runs, field):
  values = {series.key(run.setting(field)): run.setting(field) for run in runs if not series.ignores(run, field)}
  numbers = all(isinstance(value, (int, float)) for value in values.values())
  order = sorted(values, key=lambda key: values[key]) if numbers else list(values)
  return {
    'label': names.FIELDS.get(field, field),
    'values': [{'key': key, 'label': names.format_value(values[key])} for key in order],
  }


def _line(line, fields, metrics, axes):
  curves = {y: {x: series.curve(line.runs, x, y) for x in axes} for y in metrics}
  shown = style.look(line.algorithm, line.variant, line.variants)
  return _look(shown) | {
    'label': line.label,
    # None matches every value: S-SGD is compared at every period.
    'facet_values': [
      None if series.ignores(line.runs[0], field) else series.key(line.runs[0].setting(field)) for field in fields
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
  """A list of x values per axis, then mean, low and high.

  Points are thinned separately for each metric, so that rarely logged metrics keep theirs.
  """
  full = next(curve for curve in by_axis.values() if len(curve.x))
  # Axes that some log points lack are left out: their lists would have another length.
  axes = {x: curve for x, curve in by_axis.items() if len(curve.x) == len(full.x)}
  count = len(full.x)
  picks = np.unique(np.linspace(0, count - 1, min(count, _MAX_POINTS)).round().astype(int))
  points = {'x': {x: _short(curve.x[picks]) for x, curve in axes.items()}, 'mean': _short(full.mean[picks])}
  return points | ({'low': _short(full.low[picks]), 'high': _short(full.high[picks])} if band else {})


def _published_lines(one, fields, runs):
  """The lines of a published curve: one for each partition that it fits, if the runs differ in the partition."""
  partitions = {series.key(run.setting('partition')): run.setting('partition') for run in runs}
  fits = [key for key, value in partitions.items() if one.identical in (None, value == 'identical')]
  epochs = list(range(len(one.columns['train_loss'])))
  line = {
    'label': one.label,
    **_look(style.look(one.algorithm)),
    'dashes': [3, 2],
    'marker': None,
    'published': True,
    'y': {key: {'x': {'epoch': epochs}, 'mean': _short(values)} for key, values in one.columns.items()},
  }
  if 'partition' not in fields or not fits:
    return [line | {'facet_values': None}]
  return [line | {'facet_values': [key if field == 'partition' else None for field in fields]} for key in fits]


def _look(look):
  return {'color': look.color, 'dark': style.on_dark(look.color), 'dashes': list(look.dashes), 'marker': look.marker}


def _short(values):
  return [float(f'{value:.5g}') if math.isfinite(value) else None for value in values]


def as_script(value: Any) -> Markup:
  """JSON that is safe inside a script element.

  >>> as_script({'label': '</script>'})
  '{"label":"\\\\u003c/script>"}'
  """
  text = json.dumps(value, separators=(',', ':'), ensure_ascii=False, allow_nan=False)
  return Markup(text.replace('<', '\\u003c'))
