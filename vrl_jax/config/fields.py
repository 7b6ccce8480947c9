"""The fields of every run: the table, and the options of the algorithms."""

import inspect
import re
from typing import Any

import ml_collections
from ml_collections import config_dict

from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.config.checks import finite
from vrl_jax.config.optimizers import check_paths
from vrl_jax.config.table import FIELDS, Field, Role, with_roles
from vrl_jax.errors import UserError

# Parameters of the factories that are not fields: set by the run, or not expressible as a flag.
_NOT_OPTIONS = ('inner', 'axis_name', 'seed', 'corrected')


def common_fields() -> tuple[Field, ...]:
  """The rows that every config has: the table's, and every option of an algorithm (`alpha`, `buffers`, …).

  >>> [field.name for field in common_fields() if field.name in ('period', 'alpha')]
  ['period', 'alpha']
  """
  return (*FIELDS, *option_fields())


def default_config() -> ml_collections.ConfigDict:
  """The common fields with their defaults.

  >>> config = default_config()
  >>> config.algorithm, config.workers, config.partition
  ('vrl_sgd', 8, 'by_class')
  """
  return as_config(common_fields())


def as_config(fields: tuple[Field, ...]) -> ml_collections.ConfigDict:
  """A ConfigDict of the fields' defaults that accepts values of their types.

  >>> config = as_config((Field('length', None, int, Role.PROBLEM, 'words of a text'),))
  >>> config.length = 50
  >>> config.to_dict()
  {'length': 50}
  """
  config = ml_collections.ConfigDict()
  for field in fields:
    config[field.name] = config_dict.placeholder(field.kind) if field.default is None else field.default
  return config


def algorithm_options(algorithm: str | None = None) -> dict[str, Any]:
  """The options of one algorithm's factory, or of all of them, with their defaults.

  >>> algorithm_options('easgd'), 'alpha' in algorithm_options()
  ({'alpha': None}, True)
  """
  factories = ALGORITHMS.values() if algorithm is None else [ALGORITHMS[algorithm]]
  return {
    name: parameter.default
    for factory in factories
    for name, parameter in inspect.signature(factory).parameters.items()
    if name not in _NOT_OPTIONS
  }


def initial_weights_fields(fields: dict[str, Any]) -> dict[str, Any]:
  """The config fields that determine the initial weights.

  >>> initial_weights_fields({'seed': 0, 'dataset': 'mnist', 'period': 5, 'alpha': 0.1, 'tensorboard': True})
  {'seed': 0, 'dataset': 'mnist'}
  """
  options = algorithm_options()
  return {name: value for name, value in with_roles(fields, Role.PROBLEM).items() if name not in options}


def option_fields() -> tuple[Field, ...]:
  """The rows of the algorithms' options; their help is what the factory's docstring says of the argument.

  >>> next(field.help for field in option_fields() if field.name == 'mixing')
  "W, 'ring' (weights 1/2 for the worker itself, 1/4 for each neighbour) or 'complete' (the mean) (d2, extra)"
  """
  rows = []
  for name, default in algorithm_options().items():
    takers = _takers(name)
    about = f'{_argument_help(ALGORITHMS[takers[0]], name)} ({", ".join(takers)})'
    kind = float if default is None else type(default)
    rows.append(Field(name, default, kind, Role.METHOD, about, finite if kind is float else None))
  return tuple(rows)


def _takers(option):
  return [algorithm for algorithm in ALGORITHMS if option in algorithm_options(algorithm)]


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


def validate(config: ml_collections.ConfigDict) -> None:
  """Raises UserError, in one line with the value and the choices, unless the config describes a run.

  A task's own fields are checked by `vrl_jax.tasks.task.make_task`.

  >>> config = default_config()
  >>> config.update(period=20, epochs=1.0, partition='by_clas')
  >>> validate(config)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: partition='by_clas', must be one of identical, by_class, dirichlet, similarity
  """
  for name in ('sweep', 'seeds'):
    if config.get(name):
      raise UserError(f'{name}={config[name]!r:.80} means several runs: use launch.py or vrl_jax.run_sweep')
  check_fields(common_fields(), config)
  for rule in _RULES:
    rule(config)


def check_fields(fields: tuple[Field, ...], config: ml_collections.ConfigDict) -> None:
  """Raises UserError unless the config has all of these fields, with values that they can have.

  >>> field = Field('length', 50, int, Role.PROBLEM, 'words of a text')
  >>> try:
  ...   check_fields((field,), ml_collections.ConfigDict({'task': 'textcnn_dbpedia'}))
  ... except UserError as error:
  ...   print(error)
  the config has no field 'length': build it on vrl_jax.task_config('textcnn_dbpedia')
  """
  for field in fields:
    if field.name in config:
      field.require(config[field.name])
    elif field.role is not Role.SWEEP:  # the runs of a sweep do not have its fields
      raise UserError(
        f'the config has no field {field.name!r}: build it on vrl_jax.task_config({config.get("task")!r})'
      )


def _length_is_given_once(config):
  if (config.epochs is None) == (config.steps is None):
    raise UserError(f'epochs={config.epochs}, steps={config.steps}: give one of the two')


def _period_is_given(config):
  if config.period is None:
    raise UserError('period=None, must be an integer of at least 1 or "auto"')


def _workers_fit_the_devices(config):
  if config.devices and config.workers % config.devices:
    raise UserError(f'workers={config.workers} cannot be divided over devices={config.devices}')


def _nesterov_has_momentum(config):
  if config.nesterov and not config.momentum:
    raise UserError('nesterov=True needs momentum > 0')


def _initial_loss_has_epochs(config):
  if config.init_loss is not None and not config.init_epochs:
    raise UserError(f'init_loss={config.init_loss:g} needs init_epochs > 0, the maximum length of the initial SGD')


def _options_belong_to_the_algorithm(config):
  own = algorithm_options(config.algorithm)
  for name, default in algorithm_options().items():
    if name not in own and config[name] != default:
      raise UserError(
        f'{name}={config[name]!r} is not an option of algorithm={config.algorithm!r} (only of {", ".join(_takers(name))})'
      )


_RULES = (
  _length_is_given_once,
  _period_is_given,
  _workers_fit_the_devices,
  _nesterov_has_momentum,
  check_paths,
  _initial_loss_has_epochs,
  _options_belong_to_the_algorithm,
)
