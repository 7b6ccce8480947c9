"""The options of the algorithms as config fields, for the registered ones and for those with a dotted path."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from vrl_jax.algorithms import ALGORITHMS, Algorithm
from vrl_jax.config.checks import finite
from vrl_jax.config.dotted import import_dotted, is_dotted
from vrl_jax.config.table import FIELDS, Field, Role
from vrl_jax.errors import UserError

# Parameters of the factories that are not fields: set by the run, or not expressible as a flag.
_NOT_OPTIONS = ('inner', 'axis_name', 'seed', 'corrected')
_POSITIONAL = frozenset({inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD})
_NAMED = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})
_OF_FLAGS = (bool, int, float, str, tuple, type(None))


def algorithm_factory(algorithm: str) -> Callable[..., Algorithm]:
  """The factory that a name or a dotted path stands for.

  Raises:
    UserError: there is none, or it cannot be called as `factory(inner, axis_name=..., **options)`.

  >>> algorithm_factory('easgd').__name__, algorithm_factory('vrl_jax.algorithms.easgd:easgd').__name__
  ('easgd', 'easgd')
  >>> algorithm_factory('optax:sgd')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: algorithm='optax:sgd': must be a function (inner, *, axis_name, ...) with a default for \
every option, not (learning_rate, momentum, nesterov, accumulator_dtype)
  """
  if not is_dotted(algorithm):
    return ALGORITHMS[algorithm]
  factory = import_dotted('algorithm', algorithm)
  needed = 'a function (inner, *, axis_name, ...) with a default for every option'
  try:
    parameters = inspect.signature(factory).parameters
  except (TypeError, ValueError):
    raise UserError(f'algorithm={algorithm!r}: is a {type(factory).__name__}, must be {needed}') from None
  listed = list(parameters.values())
  if not listed or listed[0].kind not in _POSITIONAL or 'axis_name' not in parameters or _lacks_default(listed[1:]):
    raise UserError(f'algorithm={algorithm!r}: must be {needed}, not ({", ".join(parameters)})')
  return factory


def _lacks_default(parameters):
  given = ('axis_name', 'seed')
  return any(p.default is p.empty for p in parameters if p.kind in _NAMED and p.name not in given)


def algorithm_options(algorithm: str | None = None) -> dict[str, Any]:
  """The options of one algorithm's factory, or of all registered ones, with their defaults.

  >>> algorithm_options('easgd'), 'alpha' in algorithm_options()
  ({'alpha': None}, True)
  """
  factories = list(ALGORITHMS.values()) if algorithm is None else [algorithm_factory(algorithm)]
  return {
    name: parameter.default
    for factory in factories
    for name, parameter in list(inspect.signature(factory).parameters.items())[1:]
    if name not in _NOT_OPTIONS and parameter.kind in _NAMED and isinstance(parameter.default, _OF_FLAGS)
  }


def option_fields() -> tuple[Field, ...]:
  """The rows of the registered algorithms' options; their help is what the factory's docstring says of the argument.

  >>> next(field.help for field in option_fields() if field.name == 'mixing')
  "W, 'ring' (weights 1/2 for the worker itself, 1/4 for each neighbour) or 'complete' (the mean) (d2, extra)"
  """
  rows = []
  for name, default in algorithm_options().items():
    algorithms = algorithms_with(name)
    rows.append(_row(name, default, ALGORITHMS[algorithms[0]], f'({", ".join(algorithms)})'))
  return tuple(rows)


def custom_fields(algorithm: str) -> tuple[Field, ...]:
  """The rows of the options of an algorithm with a dotted path that no registered algorithm has.

  >>> custom_fields('vrl_sgd'), custom_fields('vrl_jax.algorithms.easgd:easgd')
  ((), ())
  """
  if not is_dotted(algorithm):
    return ()
  factory, known = algorithm_factory(algorithm), algorithm_options()
  taken = {field.name for field in FIELDS}
  rows = []
  for name, default in algorithm_options(algorithm).items():
    if name in taken:
      raise UserError(f'algorithm={algorithm!r}: its option {name!r} is already a config field; rename it')
    if name not in known:
      rows.append(_row(name, default, factory, ''))
    elif known[name] != default:
      raise UserError(
        f'algorithm={algorithm!r}: its option {name}={default!r} is already a config field, of {", ".join(algorithms_with(name))}, '
        f'with the default {known[name]!r}; rename it'
      )
  return tuple(rows)


def algorithms_with(option: str) -> list[str]:
  """The registered algorithms that have this option.

  >>> algorithms_with('alpha')
  ['easgd']
  """
  return [algorithm for algorithm in ALGORITHMS if option in algorithm_options(algorithm)]


def _row(name, default, factory, suffix):
  kind = float if default is None else type(default)
  about = f'{_argument_help(factory, name)} {suffix}'.strip() or f'an option of {factory.__name__}'
  check = finite if kind is float else None
  return Field(name, default, kind, Role.METHOD, about, check, of_algorithm=True)


def _argument_help(factory, name):
  """The first sentence of an argument in a docstring's Args section."""
  lines = (inspect.getdoc(factory) or '').splitlines()
  start = next((i for i, line in enumerate(lines) if line.startswith(f'  {name}: ')), len(lines))
  words = [line.strip() for line in lines[start : start + 1]]
  for line in lines[start + 1 :]:
    if not line.startswith('    '):
      break
    words.append(line.strip())
  text = re.sub(r' :math:`[^`]*`', '', ' '.join(words).removeprefix(f'{name}: '))
  return text.split('. ')[0].split('; ')[0].rstrip('.')
