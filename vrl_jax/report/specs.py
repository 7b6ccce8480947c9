"""Figure specs: the `figure` of `sweep.json`, validated, or the default figures."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vrl_jax import errors
from vrl_jax.report import field_axis, names, series
from vrl_jax.report.records import Run, Sweep, flat_runs

_LOG = (
  'train_loss',
  'test_loss',
  'step_loss',
  'distance_to_optimum',
  'squared_gradient',
  'consensus_distance',
  'variance_among_workers',
)
_DEFAULTS = {
  'distance': 'distance_to_optimum',  # first: if the minimum is known, the distance says more than the loss
  'loss': 'train_loss',
  'accuracy': 'test_accuracy',
  'consensus': 'consensus_distance',
  'variance': 'variance_among_workers',
}


class Figure(NamedTuple):
  """The spec of one figure.

  Attributes:
    name: the stem of the file name.
    y: the metric.
    x: the quantities on the x axes: one panel for each without `panels`, one file for each with them.
    panels: the config fields of a grid of panels: the first gives the rows, the others the columns; a single one gives
      the columns.
    log_y: whether the y axis is logarithmic.
    title: the heading; None for no heading.
    against: a config field. The figure is then a heat map over `x`, another config field, and `against`; the colour
      is `y`.

  >>> describe(Figure('distance', 'distance_to_optimum', ('step',), panels=('b', 'period')))
  'Distance to the minimum against iterations, panels by b and period'
  """

  name: str
  y: str
  x: tuple[str, ...]
  panels: tuple[str, ...] = ()
  log_y: bool = True
  title: str | None = None
  against: str | None = None


def figures(runs: Sweep | Sequence[Run], spec: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[Figure]:
  """The validated specs: those given, or else those of the sweep, or else one figure per metric of the runs.

  >>> run = Run('a', {'algorithm': 'vrl_sgd'}, ({'step': 5, 'epoch': 1.0, 'train_loss': 0.5, 'communications': 1},))
  >>> [(figure.name, figure.y, figure.x) for figure in figures([run], None)]
  [('loss', 'train_loss', ('epoch', 'communications'))]
  """
  of_sweep = runs.figures if isinstance(runs, Sweep) else ()
  spec = of_sweep if spec is None else [spec] if isinstance(spec, Mapping) else spec
  runs = flat_runs(runs)
  return [_checked(one, runs) for one in spec] if spec else _defaults(runs)


def _is_text(value):
  return isinstance(value, str)


def _is_text_or_texts(value):
  return _is_text(value) or (isinstance(value, list | tuple) and all(map(_is_text, value)))


_KINDS = (
  dict.fromkeys(('name', 'y', 'title', 'against'), (_is_text, 'a string'))
  | dict.fromkeys(('x', 'panels'), (_is_text_or_texts, 'a string or a list of strings'))
  | {'log_y': (lambda value: isinstance(value, bool | int), 'true or false')}
)


def is_log(metric: str) -> bool:
  """Whether the axis of a metric is logarithmic by default.

  >>> is_log('train_loss'), is_log('test_accuracy')
  (True, False)
  """
  return metric in _LOG


def _defaults(runs):
  panels = tuple(series.facets(runs))
  x = _axes(runs) if not panels else _axes(runs)[:1]
  has = lambda key: any(run.has(key) for run in runs)
  return [Figure(name, y, x, panels, is_log(y)) for name, y in _DEFAULTS.items() if has(y)]


def _axes(runs):
  iterations = any(run.has('distance_to_optimum') for run in runs) or not any(run.has('epoch') for run in runs)
  first = 'step' if iterations else 'epoch'
  return (first, 'communications') if any(run.has('communications') for run in runs) else (first,)


def check_spec(spec: Mapping[str, Any]) -> None:
  """Raises UserError if a spec is wrong whatever the runs are: a sweep calls it before its runs.

  >>> check_spec({'y': 'train_loss', 'x': 'step'})
  >>> check_spec({'y': 5})
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: figure: y=5, must be a string
  """
  if not isinstance(spec, Mapping):
    raise errors.UserError(f'figure: {spec!r:.80}, must be a dict with fields of {", ".join(Figure._fields)}')
  unknown = set(spec) - set(Figure._fields)
  if unknown:
    raise errors.UserError(f'figure: unknown field {min(unknown)!r}, must be one of {", ".join(Figure._fields)}')
  for field, value in spec.items():
    is_valid, words = _KINDS[field]
    if value is not None and not is_valid(value):
      raise errors.UserError(f'figure: {field}={value!r:.80}, must be {words}')
  name = spec.get('name') or spec.get('y') or ''
  if name != name.strip('. ') or set('/\\') & set(name):
    raise errors.UserError(f'figure: name={name!r}, must be a file name without /, \\ or outer dots and spaces')


def _checked(spec, runs):
  check_spec(spec)
  default = _defaults(runs)[0] if _defaults(runs) else Figure('figure', 'step_loss', ('step',))
  y = spec.get('y') or default.y
  x = _tuple(spec.get('x') or default.x)
  panels = _tuple(spec.get('panels') or ())
  metrics = sorted({key for run in runs for line in run.metrics for key in line})
  for key in (y, *x):
    if key not in metrics and not (x == (key,) and field_axis.is_numeric_field(runs, key)):
      raise errors.UserError(f'figure: no run has the metric {key!r}, only {", ".join(metrics)}')
  against = spec.get('against')
  for field in (*panels, *([against] if against else [])):
    if all(run.setting(field) is None for run in runs):
      raise errors.UserError(f'figure: no run has the config field {field!r}')
  if against and not (len(x) == 1 and field_axis.is_numeric_field(runs, x[0])):
    raise errors.UserError(f'figure: x={", ".join(x)}, must be one numeric config field with against={against!r}')
  return Figure(
    str(spec.get('name') or y), y, x, panels, bool(spec.get('log_y', is_log(y))), spec.get('title'), against
  )


def _tuple(value):
  return (value,) if isinstance(value, str) else tuple(value)


def describe(figure: Figure) -> str:
  """A sentence that describes a figure, for its caption and alternative text.

  >>> describe(Figure('loss', 'train_loss', ('epoch', 'communications')))
  'Train loss against epochs and communications'
  """
  by = f', panels by {" and ".join(figure.panels)}' if figure.panels else ''
  axes = (*figure.x, figure.against) if figure.against else figure.x
  words = f'{names.quantity(figure.y)} against {" and ".join(map(names.quantity, axes))}{by}'
  return words[0].upper() + words[1:]
