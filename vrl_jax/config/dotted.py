"""Dotted paths: `my_module:name` in a config names a user-defined function."""

import contextlib
import difflib
import importlib
import os
import pathlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from typing import Any

from vrl_jax.errors import UserError

_INSTALLED = [pathlib.Path(sysconfig.get_path(name)) for name in ('stdlib', 'purelib', 'platlib')]
_INSTALLED.append(pathlib.Path(__file__).parents[1])


def is_dotted(value: Any) -> bool:
  """Whether a config value is a dotted path, `my_package.my_module:name` or `my_package.my_module.name`.

  >>> is_dotted('my_module:half_average'), is_dotted('optax.lion'), is_dotted('vrl_sgd'), is_dotted(None)
  (True, True, False, False)
  """
  return isinstance(value, str) and (':' in value or '.' in value)


def module_of(path: str) -> str:
  """The module in a dotted path.

  >>> module_of('my_package.my_module:name'), module_of('optax.lion')
  ('my_package.my_module', 'optax')
  """
  return path.partition(':')[0] if ':' in path else path.rpartition('.')[0]


def import_dotted(field: str, path: str) -> Any:
  """Imports the object that a dotted path names; adds the current folder to `sys.path`, as `python -m` does.

  Args:
    field: the config field, for the error message.
    path: `module:name`, or `module.name`.

  Raises:
    UserError: there is no such module, it cannot be imported, or it has no such name.

  >>> import_dotted('schedule', 'optax:cosine_decay_schedule').__name__
  'cosine_decay_schedule'
  >>> import_dotted('schedule', 'optax.cosine_decay_shedule')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: schedule='optax.cosine_decay_shedule': the module 'optax' has no 'cosine_decay_shedule'; \
did you mean 'cosine_decay_schedule'?
  """
  module_name = module_of(path)
  name = path[len(module_name) + 1 :]
  if not all(part.isidentifier() for part in (*module_name.split('.'), *name.split('.'))):
    raise UserError(f'{field}={path!r}, must be a dotted path such as my_module:my_function')
  found = _import(field, path, module_name)
  for part in name.split('.'):
    if not hasattr(found, part):
      close = difflib.get_close_matches(part, dir(found), n=1)
      hint = f'; did you mean {close[0]!r}?' if close else ''
      raise UserError(f'{field}={path!r}: the module {module_name!r} has no {name!r}{hint}')
    found = getattr(found, part)
  return found


def _import(field, path, module_name):
  folder = os.getcwd()
  if folder not in sys.path and '' not in sys.path:
    sys.path.insert(0, folder)
  importlib.invalidate_caches()  # the module may have been written after the folder was first searched
  try:
    with user_code(f'{field}={path!r}: importing {module_name!r}', pass_on=ModuleNotFoundError):
      return importlib.import_module(module_name)
  except ModuleNotFoundError as error:
    if error.name and f'{module_name}.'.startswith(f'{error.name}.'):
      raise UserError(f'{field}={path!r}: there is no module {error.name!r} in {folder} or on sys.path') from error
    raise UserError(f'{field}={path!r}: importing {module_name!r} needs {error.name!r}, which is missing') from error


@contextlib.contextmanager
def user_code(doing: str, pass_on: type[Exception] | tuple[type[Exception], ...] = ()) -> Iterator[None]:
  """Reports what the user's code raises as one UserError, with the line of their file; its cause keeps the traceback.

  Args:
    doing: what is being done, the beginning of the message.
    pass_on: errors that are not converted, apart from UserError.

  >>> with user_code("task='my_module:make_task'"):
  ...   raise ValueError('no data')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: task='my_module:make_task' raises ValueError: no data
  """
  try:
    yield
  except UserError:
    raise
  except Exception as error:
    if pass_on and isinstance(error, pass_on):
      raise
    reason = ' '.join(str(error).split())
    raise UserError(f'{doing} raises {type(error).__name__}{": " if reason else ""}{reason}{_place(error)}') from error


def _place(error):
  """The innermost line outside of installed packages, if there is one."""
  if isinstance(error, SyntaxError):  # its message names the line
    return ''
  for frame in reversed(traceback.extract_tb(error.__traceback__)):
    path = pathlib.Path(frame.filename)
    if path.is_absolute() and not any(path.is_relative_to(folder) for folder in _INSTALLED):
      return f' ({path.name}, line {frame.lineno})'
  return ''
