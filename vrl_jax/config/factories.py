"""Calls the factories that a config names by a dotted path, with the keyword arguments that it gives them."""

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


def factory(field: str, config: Any, *args: Any, **words: Any) -> Callable[[], Any]:
  """The call of a field's factory with the field's `_kwargs`, not yet made.

  Args:
    field: the config field that has the dotted path.
    config: the config.
    *args: positional arguments that come before the keyword arguments.
    **words: the values of strings among the keyword arguments, such as `steps`.

  Raises:
    UserError: there is no such factory, or it does not take these arguments; the call raises one if the factory does.

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
  kwargs = with_words(getattr(config, f'{field}_kwargs', None) or {}, words)
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


def with_words(value: Any, words: Mapping[str, Any]) -> Any:
  """Keyword arguments with values for words.

  Keys of inner dicts that are numbers are restored; JSON, in which configs are stored, makes them strings.

  >>> with_words({'decay_steps': 'steps', 'scales': {'100': 0.1}}, {'steps': 400})
  {'decay_steps': 400, 'scales': {100: 0.1}}
  """
  if isinstance(value, Mapping | ml_collections.ConfigDict):
    return {int(k) if str(k).isdecimal() else k: with_words(v, words) for k, v in value.items()}
  if isinstance(value, tuple | list):
    return type(value)(with_words(v, words) for v in value)
  return words[value] if isinstance(value, str) and value in words else value
