"""Reads run and sweep directories.

A run directory contains `config.json`, `metrics.jsonl` and, once the run has ended, `summary.json` (and
`partition.json` for tasks with classes). A sweep directory contains `sweep.json`, with the name and the directory of
each run, and these directories.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from vrl_jax import errors
from vrl_jax.report import json_files
from vrl_jax.report.names import printable
from vrl_jax.report.records import Run, Sweep
from vrl_jax.system.storage import expand_home

_T = TypeVar('_T')


def read_run(folder: str | os.PathLike, name: str | None = None, overrides: Mapping[str, Any] | None = None) -> Run:
  """Reads a run directory.

  Args:
    folder: the run directory.
    name: the name of the run, which is also its label; by default that of the directory.
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
  folder = expand_home(folder, 'folder')
  config = _flatten(overrides or {}) | _flatten(json_files.read_object(folder / 'config.json'))
  summary, partition = folder / 'summary.json', folder / 'partition.json'
  return Run(
    name=printable(name or folder.resolve().name),
    config=config,
    metrics=json_files.read_metrics(folder / 'metrics.jsonl'),
    summary=json_files.read_object(summary) if summary.exists() else {},
    partition=json_files.read_partition(partition) if partition.exists() else None,
    is_named=name is not None,
  )


def read_sweep(folder: str | os.PathLike, skip_unreadable: bool = False) -> Sweep:
  """Reads a sweep directory: the runs listed in `sweep.json`, or else all sub-directories that contain a run.

  Args:
    folder: the sweep directory.
    skip_unreadable: leave out damaged runs, as long as one can be read; `Sweep.unreadable` then has the errors.

  Returns:
    The sweep.

  Raises:
    DataError: a file is missing or invalid.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for name in ('vrl_sgd', 's_sgd'):
  ...     pathlib.Path(folder, name).mkdir()
  ...     _ = pathlib.Path(folder, name, 'config.json').write_text(json.dumps({'algorithm': name}))
  ...     _ = pathlib.Path(folder, name, 'metrics.jsonl').write_text('{"step": 5, "train_loss": 0.5}\\n')
  ...   [run.algorithm for run in read_sweep(folder).runs]
  ['s_sgd', 'vrl_sgd']
  """
  folder = expand_home(folder, 'folder')
  if not os.path.isdir(folder):
    raise errors.DataError(f'{folder}: no such directory')
  path = folder / 'sweep.json'
  sweep = json_files.read_object(path) if path.exists() else {}
  entries = _entries(path, sweep.get('runs') or [])
  is_index = bool(entries)
  entries = entries or [
    _Entry(found.parent.name, found.parent.name, {}) for found in sorted(folder.glob('*/config.json'))
  ]
  # `os.path.exists` is also false for a name that is too long.
  started = [entry for entry in entries if os.path.exists(folder / entry.folder / 'config.json')]
  if not started:
    raise errors.DataError(
      f'{folder}: neither a run (no config.json) nor a sweep (no sub-directory with a config.json)'
    )
  figures = sweep.get('figure') or []
  figures = [figures] if isinstance(figures, dict) else figures
  if not isinstance(figures, list) or not all(isinstance(spec, dict) for spec in figures):
    raise errors.DataError(f'{path}: "figure" must be an object or a list of objects')
  readers = [
    functools.partial(read_run, folder / entry.folder, entry.name if is_index else None, entry.overrides)
    for entry in started
  ]
  runs, unreadable = _collect(readers, skip_unreadable)
  return Sweep(
    title=printable(str(sweep.get('title') or folder.resolve().name)),
    runs=tuple(runs),
    figures=tuple(figures),
    missing=tuple(entry.name for entry in entries if entry not in started),
    unreadable=tuple(map(str, unreadable)),
  )


class _Entry(NamedTuple):
  """A run of a sweep: its name, its directory and the fields in which it differs."""

  name: str
  folder: str
  overrides: Mapping[str, Any]


def _entries(path: pathlib.Path, runs: object) -> list[_Entry]:
  entries = []
  for run in runs if isinstance(runs, list) else [runs]:
    if not isinstance(run, dict) or not isinstance(run.get('name'), str):
      raise errors.DataError(f'{path}: "runs" must be a list of objects with a "name"')
    entry = _Entry(run['name'], run.get('folder') or run['name'], run.get('overrides') or {})
    if not isinstance(entry.folder, str):
      raise errors.DataError(f'{path}: "folder" of {entry.name!r} must be a string')
    if not isinstance(entry.overrides, dict):
      raise errors.DataError(f'{path}: "overrides" of {entry.name!r} must be an object')
    entries.append(entry)
  return entries


def _collect(readers: Iterable[Callable[[], _T]], skip_unreadable: bool) -> tuple[list[_T], list[errors.DataError]]:
  """What can be read, and the errors of the rest; raises the first error if nothing can be, or if none is allowed."""
  found: list[_T] = []
  unreadable: list[errors.DataError] = []
  for read in readers:
    try:
      found.append(read())
    except errors.DataError as error:
      if not skip_unreadable:
        raise
      unreadable.append(error)
  if not found:
    raise unreadable[0]
  return found, unreadable


def read_any(paths: str | os.PathLike | Iterable[str | os.PathLike], skip_unreadable: bool = False) -> Sweep:
  """Reads one or several run or sweep directories into one comparison; `skip_unreadable` as in `read_sweep`.

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
  folders = [expand_home(path, 'folder') for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
  if not folders:
    raise errors.UserError('no run or sweep directory was given')
  parts, unreadable = _collect(
    (functools.partial(_read_one, path, skip_unreadable) for path in folders), skip_unreadable
  )
  if len(folders) == 1:
    return parts[0]
  names = [run.name for part in parts for run in part.runs]

  def distinct(part, run):  # Two sweeps often hold runs of the same names.
    return f'{part.title}/{run.name}' if names.count(run.name) > 1 and run.name != part.title else run.name

  return Sweep(
    title=', '.join(dict.fromkeys(part.title for part in parts)),
    runs=tuple(dataclasses.replace(run, name=distinct(part, run)) for part in parts for run in part.runs),
    figures=tuple({json.dumps(spec): spec for part in parts for spec in part.figures}.values()),
    missing=tuple(name for part in parts for name in part.missing),
    unreadable=(*map(str, unreadable), *(message for part in parts for message in part.unreadable)),
  )


def _read_one(path, skip_unreadable):
  if os.path.exists(path / 'config.json') and not os.path.exists(path / 'sweep.json'):
    run = read_run(path)
    return Sweep(run.name, (run,))
  return read_sweep(path, skip_unreadable)


def _flatten(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  flat: dict[str, Any] = {}
  for key, value in tree.items():
    flat |= _flatten(value, f'{prefix}{key}.') if isinstance(value, dict) and value else {f'{prefix}{key}': value}
  return flat
