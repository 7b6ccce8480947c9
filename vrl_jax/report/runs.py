"""Reads run and sweep directories.

A run directory contains `config.json`, `metrics.jsonl` and, once the run has ended, `summary.json` (and
`partition.json` for tasks with classes). A sweep directory contains `sweep.json`, with the name and the directory of
each run, and these directories.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from vrl_jax import errors
from vrl_jax.report.records import Run, Sweep, to_number


def read_run(folder: str | os.PathLike, name: str | None = None, overrides: Mapping[str, Any] | None = None) -> Run:
  """Reads a run directory.

  Args:
    folder: the run directory.
    name: the name of the run; by default that of the directory.
    overrides: config fields to add if the stored config lacks them.

  Returns:
    The run. A run that has not ended has no summary and the status `unfinished`.

  Raises:
    DataError: a file is missing or invalid.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   _ = pathlib.Path(folder, 'config.json').write_text('{"algorithm": "vrl_sgd"}')
  ...   _ = pathlib.Path(folder, 'metrics.jsonl').write_text('{"step": 5, "train_loss": 0.5}\\n{"step"')  # killed
  ...   run = read_run(folder, name='mine')
  >>> run.name, run.status, run.final('train_loss')
  ('mine', 'unfinished', 0.5)
  """
  folder = pathlib.Path(folder)
  config = _flatten(overrides or {}) | _flatten(_read_json(folder / 'config.json', dict))
  summary, partition = folder / 'summary.json', folder / 'partition.json'
  return Run(
    name=name or folder.resolve().name,
    config=config,
    metrics=_read_metrics(folder / 'metrics.jsonl'),
    summary=_read_json(summary, dict) if summary.exists() else {},
    partition=_read_partition(partition) if partition.exists() else None,
  )


def read_sweep(folder: str | os.PathLike) -> Sweep:
  """Reads a sweep directory: the runs listed in `sweep.json`, or else all sub-directories that contain a run.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for name in ('vrl_sgd', 's_sgd'):
  ...     pathlib.Path(folder, name).mkdir()
  ...     _ = pathlib.Path(folder, name, 'config.json').write_text(json.dumps({'algorithm': name}))
  ...     _ = pathlib.Path(folder, name, 'metrics.jsonl').write_text('{"step": 5, "train_loss": 0.5}\\n')
  ...   [run.algorithm for run in read_sweep(folder).runs]
  ['s_sgd', 'vrl_sgd']
  """
  folder = pathlib.Path(folder)
  if not folder.is_dir():
    raise errors.DataError(f'{folder}: no such directory')
  path = folder / 'sweep.json'
  sweep = _read_json(path, dict) if path.exists() else {}
  listed = sweep.get('runs') or [{'name': found.parent.name} for found in sorted(folder.glob('*/config.json'))]
  if not all(isinstance(entry, dict) and isinstance(entry.get('name'), str) for entry in listed):
    raise errors.DataError(f'{path}: "runs" must be a list of objects with a "name"')
  place = lambda entry: folder / str(entry.get('folder', entry['name']))
  started = [entry for entry in listed if (place(entry) / 'config.json').exists()]
  if not started:
    raise errors.DataError(
      f'{folder}: neither a run (no config.json) nor a sweep (no sub-directory with a config.json)'
    )
  figures = sweep.get('figure') or ()
  figures = (figures,) if isinstance(figures, dict) else tuple(figures)
  if not all(isinstance(spec, dict) for spec in figures):
    raise errors.DataError(f'{path}: "figure" must be an object or a list of objects')
  return Sweep(
    title=str(sweep.get('title') or folder.resolve().name),
    runs=tuple(read_run(place(entry), entry['name'], entry.get('overrides')) for entry in started),
    figures=figures,
    missing=tuple(entry['name'] for entry in listed if entry not in started),
  )


def read_any(paths: str | os.PathLike | Iterable[str | os.PathLike]) -> Sweep:
  """Reads one or several run or sweep directories into one comparison.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for name in ('mine', 'yours'):
  ...     pathlib.Path(folder, name).mkdir()
  ...     _ = pathlib.Path(folder, name, 'config.json').write_text('{"algorithm": "vrl_sgd"}')
  ...     _ = pathlib.Path(folder, name, 'metrics.jsonl').write_text('{"step": 5, "train_loss": 0.5}\\n')
  ...   sweep = read_any([pathlib.Path(folder, 'mine'), pathlib.Path(folder, 'yours')])
  >>> sweep.title, [run.name for run in sweep.runs]
  ('mine, yours', ['mine', 'yours'])
  """
  folders = [pathlib.Path(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
  if not folders:
    raise errors.UserError('no run or sweep directory was given')
  parts = []
  for path in folders:
    is_run = (path / 'config.json').exists() and not (path / 'sweep.json').exists()
    run = read_run(path) if is_run else None
    parts.append(Sweep(run.name, (run,)) if run else read_sweep(path))
  if len(parts) == 1:
    return parts[0]
  names = [run.name for part in parts for run in part.runs]

  def distinct(part, run):  # Two sweeps often hold runs of the same names.
    return f'{part.title}/{run.name}' if names.count(run.name) > 1 and run.name != part.title else run.name

  return Sweep(
    title=', '.join(dict.fromkeys(part.title for part in parts)),
    runs=tuple(dataclasses.replace(run, name=distinct(part, run)) for part in parts for run in part.runs),
    figures=tuple({json.dumps(spec): spec for part in parts for spec in part.figures}.values()),
    missing=tuple(name for part in parts for name in part.missing),
  )


def _read_text(path):
  try:
    return path.read_text(encoding='utf-8')
  except FileNotFoundError:
    raise errors.DataError(f'{path}: no such file') from None
  except (OSError, UnicodeDecodeError) as error:
    raise errors.DataError(f'{path}: cannot be read ({error})') from None


def _read_json(path, kind):
  try:
    value = json.loads(_read_text(path))
  except json.JSONDecodeError as error:
    raise errors.DataError(f'{path}: is not JSON (line {error.lineno}: {error.msg})') from None
  if not isinstance(value, kind):
    raise errors.DataError(f'{path}: is a JSON {type(value).__name__}, must be a {kind.__name__}')
  return value


def _read_metrics(path):
  text = _read_text(path)
  lines, rows = text.split('\n'), list[dict[str, float]]()
  for number, line in enumerate(lines, start=1):
    if not line.strip():
      continue
    try:
      row = json.loads(line)
    except json.JSONDecodeError:
      if number == len(lines):  # A last line without newline: the run was killed, or is writing it now.
        break
      raise errors.DataError(f'{path}: line {number} is not JSON: {line[:40]!r}') from None
    if not isinstance(row, dict) or not isinstance(row.get('step'), (int, float)):
      raise errors.DataError(f'{path}: line {number} must be an object with a "step"')
    while rows and rows[-1]['step'] >= row['step']:  # A resumed run repeats the steps after the checkpoint.
      rows.pop()
    rows.append({key: to_number(value) for key, value in row.items() if not isinstance(value, (str, list, dict))})
  if not rows:
    raise errors.DataError(f'{path}: has no log points yet')
  return tuple(rows)


def _read_partition(path):
  value = _read_json(path, dict)
  table, names = value.get('table'), value.get('class_names')
  if not table or not isinstance(table, list) or not all(isinstance(row, list) for row in table):
    raise errors.DataError(f'{path}: must have a "table" of examples per worker and class')
  names = names or range(len(table[0]))
  if any(len(row) != len(names) for row in table):
    raise errors.DataError(f'{path}: the rows of "table" and "class_names" must have equal lengths')
  return {'table': table, 'class_names': [str(name) for name in names], 'dropped': value.get('dropped', 0)}


def _flatten(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  flat: dict[str, Any] = {}
  for key, value in tree.items():
    flat |= _flatten(value, f'{prefix}{key}.') if isinstance(value, dict) and value else {f'{prefix}{key}': value}
  return flat
