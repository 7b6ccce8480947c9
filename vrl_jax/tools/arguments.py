"""Command lines: a parser and errors in one line, and types for numbers with a range."""

import argparse
import functools
import math
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from vrl_jax.cli.ending import one_line
from vrl_jax.errors import StorageError, UserError
from vrl_jax.system.streams import prepare_streams

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


def positive_int(text: str) -> int:
  """An integer of at least 1; also in the form 1e6.

  >>> positive_int('8'), positive_int('1e6')
  (8, 1000000)
  """
  return int(_number(text, lambda value: value >= 1 and value == int(value), 'an integer of at least 1'))


def nonnegative_int(text: str) -> int:
  """An integer of at least 0; also in the form 1e6.

  >>> nonnegative_int('0')
  0
  """
  return int(_number(text, lambda value: value >= 0 and value == int(value), 'an integer of at least 0'))


def positive_float(text: str) -> float:
  """A finite number greater than 0.

  >>> positive_float('2.5')
  2.5
  >>> positive_float('-1')
  Traceback (most recent call last):
    ...
  argparse.ArgumentTypeError: '-1', must be a number greater than 0
  """
  return _number(text, lambda value: value > 0, 'a number greater than 0')


def nonnegative_float(text: str) -> float:
  """A finite number of at least 0.

  >>> nonnegative_float('0')
  0.0
  """
  return _number(text, lambda value: value >= 0, 'a number of at least 0')


def _number(text: str, is_valid: Callable[[float], bool], requirement: str) -> float:
  try:
    value = float(text)
  except ValueError:
    value = math.nan
  if not (math.isfinite(value) and is_valid(value)):
    raise argparse.ArgumentTypeError(f'{text!r}, must be {requirement}')
  return value
