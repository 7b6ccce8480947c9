"""Command lines: a parser and errors in one line, and types for numbers with a range."""

import argparse
import functools
import math
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from vrl_jax.cli.ending import one_line
from vrl_jax.errors import StorageError, UserError
from vrl_jax.system.storage import expand_home
from vrl_jax.system.streams import prepare_streams

_INT_LIMIT, _FLOAT_LIMIT = 1e18, 1e100  # with larger numbers, the formulas of the tools overflow

Main = Callable[[Sequence[str] | None], int]


def reports_errors(main: Main) -> Callable[..., int]:
  """Decorates the main function of a tool: a user error, an OSError or Ctrl-C becomes one line and an exit status.

  >>> @reports_errors
  ... def main(argv):
  ...   raise UserError(f'unknown: {argv[0]}')
  >>> main(['--fast'])  # prints the line on stderr
  2
  """

  @functools.wraps(main)
  def reporting(argv: Sequence[str] | None = None) -> int:
    try:
      return main(argv)
    except UserError as error:
      print(f'error: {one_line(error)}', file=sys.stderr)
      return error.exit_status
    except OSError as error:
      print(f'error: {one_line(error)}', file=sys.stderr)
      return StorageError.exit_status
    except KeyboardInterrupt:
      print('interrupted', file=sys.stderr)
      return 128 + signal.SIGINT

  return reporting


class ArgumentParser(argparse.ArgumentParser):
  """An `argparse.ArgumentParser` that reports an invalid command line in one line.

  >>> ArgumentParser(prog='python -m tool').parse_args([])
  Namespace()
  """

  def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
    """Prepares the standard streams and parses."""
    prepare_streams()
    return super().parse_known_args(*args, **kwargs)

  def error(self, message: str) -> NoReturn:
    """Exits with status 2."""
    self.exit(2, f'error: {message} (see {self.prog} --help)\n')


def expanded_path(text: str) -> pathlib.Path:
  """A path; `~` is expanded, which shells do not do in `--output=~/a`.

  >>> expanded_path('~/runs') == pathlib.Path.home() / 'runs'
  True
  """
  try:
    return expand_home(text, 'path')
  except UserError as error:
    raise argparse.ArgumentTypeError(str(error)) from error


def positive_int(text: str) -> int:
  """An integer of at least 1; also in the form 1e6.

  >>> positive_int('8'), positive_int('1e6')
  (8, 1000000)
  """
  return _integer(text, 1)


def nonnegative_int(text: str) -> int:
  """An integer of at least 0; also in the form 1e6.

  >>> nonnegative_int('0')
  0
  """
  return _integer(text, 0)


def positive_float(text: str) -> float:
  """A finite number greater than 0.

  >>> positive_float('2.5')
  2.5
  >>> positive_float('-1')
  Traceback (most recent call last):
    ...
  argparse.ArgumentTypeError: '-1', must be a number greater than 0
  """
  return _float(text, lambda value: value > 0, 'a number greater than 0')


def nonnegative_float(text: str) -> float:
  """A finite number of at least 0.

  >>> nonnegative_float('0')
  0.0
  """
  return _float(text, lambda value: value >= 0, 'a number of at least 0')


def _integer(text: str, least: int) -> int:
  value = _number(text)
  if not least <= value < _INT_LIMIT or value != int(value):
    limit = f' and less than {_INT_LIMIT:g}' if value >= _INT_LIMIT else ''
    raise argparse.ArgumentTypeError(f'{text!r}, must be an integer of at least {least}{limit}')
  return int(value)


def _float(text: str, is_valid: Callable[[float], bool], requirement: str) -> float:
  value = _number(text)
  if not is_valid(value):
    raise argparse.ArgumentTypeError(f'{text!r}, must be {requirement}')
  if value and not 1 / _FLOAT_LIMIT < value < _FLOAT_LIMIT:
    raise argparse.ArgumentTypeError(f'{text!r}, must be between {1 / _FLOAT_LIMIT:g} and {_FLOAT_LIMIT:g}')
  return value


def _number(text: str) -> float:
  try:
    return float(text)
  except ValueError:
    return math.nan
