"""The fields of every run: the table, and the options of the algorithms."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import ml_collections
from ml_collections import config_dict

from vrl_jax.config import optimizers
from vrl_jax.config.algorithms import algorithm_options, algorithms_with, custom_fields, option_fields
from vrl_jax.config.table import FIELDS, Field, Role, with_roles
from vrl_jax.errors import UserError


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


def set_algorithm(config: ml_collections.ConfigDict, algorithm: str) -> None:
  """Sets a config's algorithm; the options that only an algorithm with a dotted path has become fields.

  The fields of the options that only the previous algorithm had are removed.

  >>> config = default_config()
  >>> set_algorithm(config, 'easgd')
  >>> config.algorithm
  'easgd'
  """
  own = custom_fields(algorithm)
  with config.unlocked():
    if algorithm != config.algorithm:
      for field in custom_fields(config.algorithm):
        if field.name in config:
          del config[field.name]
    config.algorithm = algorithm
    for name, default in as_config(own).items(preserve_field_references=True):
      if name not in config:
        config[name] = default


def complete(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Adds the fields of a custom algorithm's options; returns a copy if some were missing.

  >>> config = default_config()
  >>> complete(config) is config
  True
  """
  if all(field.name in config for field in custom_fields(config.get('algorithm', ''))):
    return config
  config = copy.deepcopy(config)
  set_algorithm(config, config.algorithm)
  return config


def initial_weights_fields(fields: dict[str, Any]) -> dict[str, Any]:
  """The config fields that determine the initial weights.

  >>> initial_weights_fields({'seed': 0, 'dataset': 'mnist', 'period': 5, 'alpha': 0.1, 'tensorboard': True})
  {'seed': 0, 'dataset': 'mnist'}
  """
  own = custom_fields(fields.get('algorithm', '')) if describes_algorithm(fields) else ()
  options = {*algorithm_options(), *(field.name for field in own)}
  return {name: value for name, value in with_roles(fields, Role.PROBLEM).items() if name not in options}


def algorithm_fields(config: Mapping[str, Any]) -> set[str]:
  """The fields that have no meaning in a run whose algorithm is given as an object, with its optimizer and options.

  >>> {'momentum', 'fragments', 'alpha', 'learning_rate'} <= algorithm_fields({'init_epochs': 0.0})
  True
  >>> 'learning_rate' in algorithm_fields({'init_epochs': 5.0})  # then it is that of the initial SGD
  False
  """
  of_initial_sgd = () if config.get('init_epochs') else ('learning_rate', 'weight_decay')
  return {*(field.name for field in common_fields() if field.of_algorithm), *of_initial_sgd}


def describes_algorithm(config: Mapping[str, Any]) -> bool:
  """Whether a config describes its algorithm; it does not if it is `without_algorithm`.

  >>> describes_algorithm(default_config()), describes_algorithm(without_algorithm(default_config()))
  (True, False)
  """
  return 'optimizer' in config


def without_algorithm(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """A copy of the config without its `algorithm_fields`; `algorithm` only names the object that is given.

  >>> 'momentum' in without_algorithm(default_config())
  False
  """
  config = copy.deepcopy(config)
  with config.unlocked():
    for name in algorithm_fields(config):
      if name in config:
        del config[name]
  return config


def validate(config: ml_collections.ConfigDict, *, given_algorithm: bool = False) -> None:
  """Raises UserError, in one line with the value and the choices, unless the config describes a run.

  A task's own fields are checked by `vrl_jax.tasks.task.make_task`.

  Args:
    config: the config.
    given_algorithm: whether it is a config `without_algorithm`.

  >>> config = default_config()
  >>> config.update(period=20, epochs=1.0, partition='by_clas')
  >>> validate(config)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: partition='by_clas', must be one of identical, by_class, dirichlet, similarity, \
by_label, dirichlet_unequal
  """
  for name in ('sweep', 'seeds'):
    if config.get(name):
      raise UserError(f'{name}={config[name]!r:.80} means several runs: use launch.py or vrl_jax.run_sweep')
  left_out = {'algorithm', *algorithm_fields(config)} if given_algorithm else ()
  check_fields(tuple(field for field in common_fields() if field.name not in left_out), config)
  if not given_algorithm:
    check_fields(custom_fields(config.algorithm), config)
  for rule in _RULES if given_algorithm else (*_RULES, *_ALGORITHM_RULES):
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
  size = config.devices_per_worker or 1
  islands = f' in islands of devices_per_worker={size}' if size > 1 else ''
  if config.devices and (config.devices % size or config.workers % (config.devices // size)):
    raise UserError(f'workers={config.workers} cannot be divided over devices={config.devices}{islands}')
  if config.batch_size % size:
    raise UserError(f'batch_size={config.batch_size} cannot be divided over devices_per_worker={size}')


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
        f'{name}={config[name]!r} is not an option of algorithm={config.algorithm!r} (only of {", ".join(algorithms_with(name))})'
      )


def _values_are_finite(config):
  for name, value in config.items():
    if any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in _leaves(value)):
      raise UserError(f'{name}={value!r:.80}, must be finite')  # JSON, in which the config is stored, has no others


def _leaves(value):
  if isinstance(value, Mapping | ml_collections.ConfigDict):
    value = list(value.values())
  if not isinstance(value, tuple | list):
    yield value
    return
  for part in value:
    yield from _leaves(part)


_RULES = (
  _values_are_finite,
  _length_is_given_once,
  _period_is_given,
  _workers_fit_the_devices,
  _initial_loss_has_epochs,
)
_ALGORITHM_RULES = (_nesterov_has_momentum, optimizers.check_paths, _options_belong_to_the_algorithm)
