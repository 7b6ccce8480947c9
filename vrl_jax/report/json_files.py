"""Reads JSON that may be damaged: the result is bounded and printable, an error is one line."""

import json
import os
import pathlib
from typing import Any, TypeGuard

from vrl_jax import errors
from vrl_jax.report.names import printable
from vrl_jax.report.records import to_number

_MAX_DEPTH = 50  # of nested lists and objects; Python's recursion ends at about 1,000
_MAX_DIGITS = 300  # of integers; a float64 has an exponent of at most 308


def parse(text: str) -> Any:
  """The value of a JSON text; its strings are printable, and integers of more than 300 digits are infinite.

  Raises:
    ValueError: the text is no JSON (then a `json.JSONDecodeError`), or is nested too deeply.

  >>> parse('{"loss": 1' + '0' * 5000 + ', "name": "\\\\ud800"}')
  {'loss': inf, 'name': '\\\\ud800'}
  >>> parse('[' * 100_000)
  Traceback (most recent call last):
    ...
  ValueError: is nested more than 50 levels deep
  """
  try:
    return _bounded(json.loads(text, parse_int=_integer), _MAX_DEPTH)
  except RecursionError:
    raise ValueError(f'is nested more than {_MAX_DEPTH} levels deep') from None


def _integer(digits):
  return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _bounded(value, levels):
  if isinstance(value, str):
    return printable(value)
  if not isinstance(value, list | dict):
    return value
  if not levels:
    raise ValueError(f'is nested more than {_MAX_DEPTH} levels deep')
  if isinstance(value, list):
    return [_bounded(item, levels - 1) for item in value]
  return {printable(key): _bounded(item, levels - 1) for key, item in value.items()}


def read_object(path: str | os.PathLike) -> dict[str, Any]:
  """Reads a file that is one JSON object.

  >>> read_object('/nowhere/config.json')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.DataError: /nowhere/config.json: no such file
  """
  try:
    value = parse(_read_text(path, 'strict'))
  except json.JSONDecodeError as error:
    raise errors.DataError(f'{path}: is not JSON (line {error.lineno}: {error.msg})') from None
  except ValueError as error:
    raise errors.DataError(f'{path}: {error}') from None
  if not isinstance(value, dict):
    raise errors.DataError(f'{path}: is a JSON {type(value).__name__}, must be a dict')
  return value


def read_metrics(path: str | os.PathLike) -> tuple[dict[str, float], ...]:
  """Reads a file of log points, one JSON object per line; an incomplete last line is ignored.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'metrics.jsonl')
  ...   _ = path.write_text('{"step": 5, "train_loss": null}\\n{"step": 10, "tr')
  ...   read_metrics(path)
  ({'step': 5.0, 'train_loss': nan},)
  """
  lines, rows = _read_text(path, 'surrogateescape').split('\n'), list[dict[str, float]]()
  for number, line in enumerate(lines, start=1):
    if not line.strip():
      continue
    try:
      row = parse(line)
    except json.JSONDecodeError:
      if number == len(lines):  # A last line without newline: the run was killed, or is writing it now.
        break
      raise errors.DataError(f'{path}: line {number} is not JSON: {line[:40]!r}') from None
    except ValueError as error:
      raise errors.DataError(f'{path}: line {number} {error}') from None
    if not isinstance(row, dict) or not abs(to_number(row.get('step'))) < float('inf'):
      raise errors.DataError(f'{path}: line {number} must be an object with a "step", a finite number')
    while rows and rows[-1]['step'] >= row['step']:  # A resumed run repeats the steps after the checkpoint.
      rows.pop()
    rows.append({key: to_number(value) for key, value in row.items() if not isinstance(value, (str, list, dict))})
  if not rows:
    raise errors.DataError(f'{path}: has no log points yet')
  return tuple(rows)


def read_partition(path: str | os.PathLike) -> dict[str, Any]:
  """Reads the table of examples per worker and class.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'partition.json')
  ...   _ = path.write_text('{"table": [[5, 0], [0, 5]]}')
  ...   read_partition(path)
  {'table': [[5, 0], [0, 5]], 'class_names': ['0', '1'], 'dropped': 0}
  """
  value = read_object(path)
  table, dropped = value.get('table'), value.get('dropped') or 0
  if not _is_list(table) or not all(_is_list(row) and all(map(_is_count, row)) for row in table):
    raise errors.DataError(f'{path}: must have a "table" of examples per worker and class')
  names = value.get('class_names') or list(range(len(table[0])))
  if not _is_list(names) or any(len(row) != len(names) for row in table):
    raise errors.DataError(f'{path}: the rows of "table" and "class_names" must have equal lengths')
  if not _is_count(dropped):
    raise errors.DataError(f'{path}: "dropped" must be a number of examples')
  return {'table': table, 'class_names': [str(name) for name in names], 'dropped': dropped}


def _is_list(value: object) -> TypeGuard[list[Any]]:
  return isinstance(value, list) and len(value) > 0


def _is_count(value):
  return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read_text(path, undecodable):
  path = pathlib.Path(path)
  try:
    return path.read_text(encoding='utf-8', errors=undecodable)
  except FileNotFoundError:
    raise errors.DataError(f'{path}: no such file') from None
  except (OSError, UnicodeDecodeError) as error:
    raise errors.DataError(f'{path}: cannot be read ({error})') from None
