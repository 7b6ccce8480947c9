"""Display names of algorithms, metrics and config fields, and the format of numbers in tables and figures."""

import math
import re

ALGORITHMS = {
  's_sgd': 'S-SGD',
  'local_sgd': 'Local SGD',
  'easgd': 'EASGD',
  'vrl_sgd': 'VRL-SGD',
  'vrl_sgd_w': 'VRL-SGD-W',
  'cocod_sgd': 'CoCoD-SGD',
  'scaffold': 'SCAFFOLD',
  'diloco': 'DiLoCo',
  'slowmo': 'SlowMo',
  'vrl_adaptive': 'VRL-Adaptive',
  'd2': 'D²',
  'extra': 'EXTRA',
}

METRICS = {
  'train_loss': 'train loss',
  'distance_to_optimum': 'distance to the minimum',
  'squared_gradient': '‖∇f(x̂)‖²',
  'test_loss': 'test loss',
  'train_accuracy': 'train accuracy (%)',
  'test_accuracy': 'test accuracy (%)',
  'consensus_distance': 'consensus distance',
  'variance_among_workers': 'variance among workers',
  'correction_norm': 'norm of the correction Δ',
  'step_loss': 'mini-batch loss',
  'examples_per_second': 'examples per second',
}

AXES = {
  'epoch': 'epochs',
  'step': 'iterations',
  'communications': 'communications',
  'bytes_communicated': 'bytes sent per worker',
  'seconds': 'seconds',
}

FIELDS = {'period': 'k', 'learning_rate': 'γ', 'first_period': 'first k', 'workers': 'N', 'alpha': 'α'}


def algorithm(key: str) -> str:
  """The display name of an algorithm.

  >>> algorithm('vrl_sgd_w'), algorithm('post_local_sgd'), algorithm('my_module:half_average')
  ('VRL-SGD-W', 'Post-Local-SGD', 'Half-Average')
  >>> algorithm('VRL-SGD, rate 0.1')  # the name of an algorithm that was given as an object
  'VRL-SGD, rate 0.1'
  """
  if not re.fullmatch(r'[a-z_][\w.]*(:[\w.]+)?', key):
    return key
  words = re.split('[:.]', key)[-1].split('_')
  return ALGORITHMS.get(key) or '-'.join('SGD' if word == 'sgd' else word.capitalize() for word in words)


def quantity(key: str) -> str:
  """The display name of a metric, an axis or a config field.

  >>> quantity('train_loss'), quantity('period')
  ('train loss', 'period k')
  """
  field = f'{key.replace("_", " ")} {FIELDS.get(key, "")}'.strip()
  return METRICS.get(key) or AXES.get(key) or field


def setting(field: str, value: object) -> str:
  """A config field with its value, for a label.

  >>> setting('period', 20), setting('b', 10.0)
  ('k = 20', 'b = 10')
  """
  return f'{FIELDS.get(field, field)} = {format_value(value)}'


# Control characters other than tab and newline, and code points that UTF-8 or XML do not have.
_UNPRINTABLE = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')


def printable(text: str) -> str:
  """A text that can be written to any file, page and terminal: other characters are shown as their escape sequences.

  >>> printable('Δ is no control character'), printable('lone \\ud800, \\x1b[2J')
  ('Δ is no control character', 'lone \\\\ud800, \\\\x1b[2J')
  """
  return _UNPRINTABLE.sub(lambda match: match[0].encode('unicode_escape').decode(), text)


def format_value(value: object) -> str:
  """A config value without quotes and trailing zeros.

  >>> format_value(0.010), format_value((1, 2.50)), format_value(None), format_value(())
  ('0.01', '1, 2.5', 'none', 'none')
  """
  if value is None or value in ((), []):
    return 'none'
  if isinstance(value, float):
    return f'{value:g}'
  return ', '.join(map(format_value, value)) if isinstance(value, (list, tuple)) else str(value)


def format_number(value: float, digits: int = 4) -> str:
  """A result with a few significant digits.

  >>> format_number(0.02843870), format_number(5.1e-06, 3), format_number(float('nan'))
  ('0.02844', '5.10e-06', 'nan')
  """
  if value == 0 or 10**digits <= abs(value) < 1e6:
    return f'{value:,.0f}'
  return f'{value:#.{digits}g}'.rstrip('.') if 1e-3 <= abs(value) < 10**digits else f'{value:.{digits - 1}e}'


def format_bytes(value: float) -> str:
  """A number of bytes with a decimal unit.

  >>> format_bytes(831), format_bytes(12_345_678)
  ('831 B', '12.3 MB')
  """
  if not math.isfinite(value):
    return str(value)
  for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
    if abs(value) < 999.5 or unit == 'TB':
      return f'{value:.0f} B' if unit == 'B' else f'{value:.3g} {unit}'
    value /= 1000
  raise AssertionError
