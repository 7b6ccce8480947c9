"""Calls factories that a config names by dotted paths, with the keyword arguments in the config."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import ml_collections

from vrl_jax.config.dotted import import_dotted, user_code
from vrl_jax.errors import UserError


def mapping(name: str, value: Any) -> None:
  """A check for keyword arguments: a dict whose keys are names.

  >>> mapping('optimizer_kwargs', {'b1': 0.9})
  >>> mapping('optimizer_kwargs', 0.9)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: optimizer_kwargs=0.9, must be a dict of keyword arguments
  """
  is_dict = isinstance(value, Mapping | ml_collections.ConfigDict)
  if not is_dict or not all(isinstance(key, str) and key.isidentifier() for key in value):
    raise UserError(f'{name}={value!r:.80}, must be a dict of keyword arguments')


def factory(field: str, config: Any, *args: Any, **placeholders: Any) -> Callable[[], Any]:
  """Prepares the call of a field's factory with the field's `_kwargs`.

  Args:
    field: the config field that has the dotted path.
    config: the config.
    *args: positional arguments that come before the keyword arguments.
    **placeholders: see `fill_placeholders`.

  Returns:
    A function without arguments that makes the call, and raises UserError if the factory raises an error.

  Raises:
    UserError: there is no such factory, or it does not take these arguments.

  >>> config = ml_collections.ConfigDict({'optimizer': 'optax.lion', 'optimizer_kwargs': {'b1': 0.8}})
  >>> factory('optimizer', config, 0.1)()._fields
  ('init', 'update')
  >>> config.optimizer_kwargs = {'beta': 0.8}
  >>> factory('optimizer', config, 0.1)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: optimizer='optax.lion': got an unexpected keyword argument 'beta'; it takes learning_rate, \
b1, b2, mu_dtype, weight_decay, mask (see optimizer_kwargs)
  """
  path = getattr(config, field)
  function = import_dotted(field, path)
  if not callable(function):
    raise UserError(f'{field}={path!r}: is a {type(function).__name__}, must be a function')
  kwargs = fill_placeholders(getattr(config, f'{field}_kwargs', None) or {}, placeholders)
  try:
    signature = inspect.signature(function)
  except (TypeError, ValueError):  # some functions that are written in C have none
    signature = None
  if signature:
    try:
      signature.bind(*args, **kwargs)
    except TypeError as error:
      takes = ', '.join(signature.parameters)
      raise UserError(f'{field}={path!r}: {error}; it takes {takes} (see {field}_kwargs)') from error

  def call():
    with user_code(f'{field}={path!r}'):
      return function(*args, **kwargs)

  return call


def fill_placeholders(value: Any, placeholders: Mapping[str, Any]) -> Any:
  """Replaces the strings in keyword arguments that are placeholders by their values.

  Keys of inner dicts that are numbers are restored; JSON, in which configs are stored, makes them strings.

  >>> fill_placeholders({'decay_steps': 'steps', 'scales': {'100': 0.1}}, {'steps': 400})
  {'decay_steps': 400, 'scales': {100: 0.1}}
  """
  if isinstance(value, Mapping | ml_collections.ConfigDict):
    return {int(k) if str(k).isdecimal() else k: fill_placeholders(v, placeholders) for k, v in value.items()}
  if isinstance(value, tuple | list):
    return type(value)(fill_placeholders(v, placeholders) for v in value)
  return placeholders[value] if isinstance(value, str) and value in placeholders else value
