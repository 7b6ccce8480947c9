"""Checks on the values of config fields: functions of the field's name and the value that raise UserError."""

import dataclasses
import importlib
import math
from collections.abc import Callable, Iterable
from typing import Any

from vrl_jax.config.dotted import is_dotted
from vrl_jax.errors import UserError


def integer(least: int, *, bits: int | None = None, otherwise: str = '') -> Callable[[str, Any], None]:
  """Returns a check for integers of at least `least` and less than 2^`bits`.

  >>> integer(1)('period', 20)
  """

  def check(name, value):
    if otherwise and value == otherwise:
      return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
      also = f' or "{otherwise}"' if otherwise else ''
      raise UserError(f'{name}={value!r}, must be an integer of at least {least}{also}')
    if bits and value >= 2**bits:
      raise UserError(f'{name}={value}, must be less than 2^{bits}')

  return check


def number(
  *, positive: bool = False, least: float = 0.0, most: float = math.inf, below: float = math.inf
) -> Callable[[str, float], None]:
  """Returns a check for finite numbers in the given range.

  >>> number(below=1)('momentum', 0.9)
  """

  def check(name, value):
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
      raise UserError(f'{name}={value!r}, must be a number {"greater than" if positive else "of at least"} 0')
    if not least <= value <= most or value >= below:
      limit = (
        f'at least {least:g}' if value < least else f'at most {most:g}' if value > most else f'less than {below:g}'
      )
      raise UserError(f'{name}={value!r}, must be {limit}')

  return check


def one_of_numbers(*allowed: int) -> Callable[[str, int], None]:
  """Returns a check for one of some integers.

  >>> one_of_numbers(4, 8, 32)('bits', 8)
  """

  def check(name, value):
    if isinstance(value, bool) or value not in allowed:
      raise UserError(f'{name}={value!r}, must be one of {", ".join(map(str, allowed))}')

  return check


def finite(name: str, value: float) -> None:
  """A check for finite numbers.

  >>> finite('x0', -1.5)
  """
  if not math.isfinite(value):
    raise UserError(f'{name}={value!r}, must be finite')


@dataclasses.dataclass(frozen=True)
class OneOf:
  """The check that a value is one of some names; see `one_of`.

  Attributes:
    source: the names, or `module:attribute` of something that has them.
    dotted: an example of a dotted path, if the value may be one; '' if not.

  >>> OneOf(('keep', 'mean')).choices
  ['keep', 'mean']
  """

  source: str | Iterable[str]
  dotted: str = ''

  @property
  def choices(self) -> list[str]:
    """The names."""
    return list(_look_up(self.source) if isinstance(self.source, str) else self.source)

  def __call__(self, name: str, value: Any) -> None:
    """Raises UserError unless `value` is one of the names."""
    if value not in self.choices and not (self.dotted and is_dotted(value)):
      raise UserError(f'{name}={value!r}, must be one of {self.allowed}')

  @property
  def allowed(self) -> str:
    """The names, and the example of a dotted path."""
    return ', '.join(self.choices) + (f', or a dotted path such as {self.dotted}' if self.dotted else '')


def one_of(source: str | Iterable[str], dotted: str = '') -> OneOf:
  """Returns a check that a value is one of some names.

  Args:
    source: the names, or `module:attribute` of something that has them, which is looked up when it is needed.
    dotted: an example of a dotted path, if the value may be one (see `vrl_jax.config.dotted`).

  >>> one_of('vrl_jax.data.partition:PARTITIONS')('partition', 'by_class')
  """
  return OneOf(source, dotted)


def step_range(name: str, value: Any) -> None:
  """Checks that a value is () or (first, last), integers with 0 ≤ first < last.

  >>> step_range('profile_steps', (40, 60))
  >>> step_range('profile_steps', (60, 40))
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: profile_steps=(60, 40), must be (first, last), integers with 0 <= first < last
  """
  are_integers = all(isinstance(step, int) and not isinstance(step, bool) for step in value)
  if value and not (are_integers and len(value) == 2 and 0 <= value[0] < value[1]):
    raise UserError(f'{name}={tuple(value)!r}, must be (first, last), integers with 0 <= first < last')


def checked_by(function: str) -> Callable[[str, Any], None]:
  """Returns a check that calls `module:function` with the value.

  >>> checked_by('vrl_jax.engine.periods:check_stages')('period_stages', ((0, 5), (100, 20)))
  """

  def check(name, value):
    del name
    _look_up(function)(value)

  return check


def _look_up(reference):
  module, _, attribute = reference.partition(':')
  return getattr(importlib.import_module(module), attribute)
