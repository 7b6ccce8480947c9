"""Numbers on a command line: types for argparse that say what a value must be."""

import argparse
import math
from collections.abc import Callable


def whole(text: str) -> int:
  """A whole number of at least 1; 1e6 is one too.

  >>> whole('8'), whole('1e6')
  (8, 1000000)
  """
  return int(_number(text, lambda value: value >= 1 and value == int(value), 'a whole number of at least 1'))


def positive(text: str) -> float:
  """A number greater than 0.

  >>> positive('2.5')
  2.5
  >>> positive('-1')
  Traceback (most recent call last):
    ...
  argparse.ArgumentTypeError: '-1', must be a number greater than 0
  """
  return _number(text, lambda value: value > 0, 'a number greater than 0')


def not_negative(text: str) -> float:
  """A number of at least 0.

  >>> not_negative('0')
  0.0
  """
  return _number(text, lambda value: value >= 0, 'a number of at least 0')


def _number(text: str, valid: Callable[[float], bool], must: str) -> float:
  try:
    value = float(text)
  except ValueError:
    value = math.nan
  if not (math.isfinite(value) and valid(value)):
    raise argparse.ArgumentTypeError(f'{text!r}, must be {must}')
  return value
