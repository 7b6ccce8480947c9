"""Reads metrics.jsonl when a run is resumed: one JSON object per log line."""

import contextlib
import io
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

from vrl_jax.errors import DataError
from vrl_jax.training.log_points import LogSteps


def keep_lines_until(path: pathlib.Path, step: int, expected: LogSteps) -> dict[str, Any] | None:
  """Removes the lines after `step`, which a resumed run logs again.

  A run that was killed, or whose machine was, can have left anything there, and none of it is read.

  Args:
    path: the file; it need not exist.
    step: the last step whose line is kept.
    expected: the steps of the run's log lines, from the first on; it is advanced to the first one after `step`.

  Returns:
    The last line that is kept; None if there is none.

  Raises:
    DataError: a line up to `step` is damaged or missing. Nothing has changed on disk.

  >>> import tempfile
  >>> from vrl_jax.engine.periods import make_periods
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'metrics.jsonl')
  ...   _ = path.write_bytes(b'{"step": 0, "train_loss": 0.5}\\n{"step": 5, "train_loss": 0.25}\\n{"ste\\xff')
  ...   keep_lines_until(path, step=5, expected=LogSteps(make_periods(10, period=5), interval=5))
  ...   list(read_lines(path))
  {'step': 5, 'train_loss': 0.25}
  [{'step': 0, 'train_loss': 0.5}, {'step': 5, 'train_loss': 0.25}]
  """
  last, line, end = None, b'\n', 0
  with open(path, 'r+b') if path.exists() else io.BytesIO() as file:
    for number, wanted in enumerate(expected.until(step), 1):
      line = file.readline()
      fields = _parse(line)
      if line and fields is None:
        shown = repr(line[:40].rstrip(b'\n')).removeprefix('b')
        raise DataError(f'{path}: line {number} is damaged: {shown}; repair it to resume')
      if fields is None or fields['step'] != wanted:
        wrong = wanted if fields is None else min(wanted, fields['step'])
        raise DataError(
          f'{path}: the lines up to step {step} do not match the run (see step {wrong}); restore the file to resume'
        )
      expected.add(fields.get('train_loss', math.nan))
      last, end = fields, end + len(line)
    file.truncate(end)
    if not line.endswith(b'\n'):
      file.seek(end)
      file.write(b'\n')
  return last


def read_lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
  """Yields the lines, which `keep_lines_until` has checked; none if there is no file.

  >>> list(read_lines(pathlib.Path('nowhere', 'metrics.jsonl')))
  []
  """
  with contextlib.suppress(FileNotFoundError), open(path, encoding='utf-8') as file:
    for line in file:
      yield json.loads(line)


def _parse(line):
  """The fields of an intact line, else None."""
  try:
    fields = json.loads(line.decode())
  except (ValueError, RecursionError):
    return None
  intact = isinstance(fields, dict) and type(fields.get('step')) is int
  return fields if intact and isinstance(fields.get('train_loss', math.nan), int | float) else None
