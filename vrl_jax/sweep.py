"""Several runs that differ in a few fields, compared at the end."""

import json
import os
import pathlib
import re
from typing import Any

import ml_collections

from vrl_jax import report
from vrl_jax.errors import UserError
from vrl_jax.signals import Interrupted
from vrl_jax.train import Diverged, train_and_evaluate

_OF_THE_SWEEP = ('sweep', 'figure', 'title')


def run_sweep(config: ml_collections.ConfigDict, workdir: str | os.PathLike) -> dict[str, pathlib.Path]:
  """Runs every entry of `config.sweep` into a sub-folder, then prints a table and writes a report.

  Finished runs are not run again, so the same command goes on where it was stopped. A run that diverges is noted and
  the others go on.

  Args:
    config: a whole config with `sweep`, a tuple of dicts: `name`, and the fields that this run has otherwise; and,
      if it likes, `title` and `figure` (see `vrl_jax.report.comparison_figure`).
    workdir: the sweep's folder.

  Returns:
    The files of the report.
  """
  folder = pathlib.Path(workdir)
  runs = sweep_runs(config)
  _write_index(config, folder)
  for number, (name, run_config) in enumerate(runs, 1):
    print(f'[{number}/{len(runs)}] {name}')
    try:
      train_and_evaluate(run_config, folder / name)
    except Interrupted:
      raise
    except Diverged as error:
      print(error)
  files = report.write_report(folder)
  print(report.comparison_table(report.read_sweep(folder)))
  for name, path in files.items():
    print(f'{name}: {path}')
  return files


def sweep_runs(config: ml_collections.ConfigDict) -> list[tuple[str, ml_collections.ConfigDict]]:
  """The (name, config) of every run of the sweep."""
  runs = []
  for entry in config.sweep:
    overrides = dict(entry)
    name = overrides.pop('name', None)
    if not isinstance(name, str) or not re.fullmatch(r'[\w.=, +-]+', name):
      raise UserError(f'sweep: name={name!r}, every entry needs one that can be a folder')
    run = ml_collections.ConfigDict({key: value for key, value in config.items() if key not in _OF_THE_SWEEP})
    for key, value in overrides.items():
      if key not in config:
        raise UserError(f'sweep entry {name!r}: unknown field {key!r}')
      with run.ignore_type():
        run[key] = value
    runs.append((name, run))
  names = [name for name, _ in runs]
  if len(set(names)) < len(names):
    raise UserError(f'sweep: the names {sorted({n for n in names if names.count(n) > 1})} occur more than once')
  return runs


def _write_index(config: ml_collections.ConfigDict, folder: pathlib.Path) -> None:
  if (folder / 'config.json').exists():
    raise UserError(f'{folder}: holds a single run; choose another --workdir for the sweep')
  index: dict[str, Any] = {
    'title': config.get('title', config.task),
    'runs': [{'name': e['name'], 'overrides': {k: v for k, v in e.items() if k != 'name'}} for e in config.sweep],
    'figure': [dict(spec) for spec in config.get('figure', ())],
  }
  try:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'sweep.json').write_text(json.dumps(index, indent=2) + '\n')
  except OSError as error:
    raise UserError(f'{folder}: cannot write there ({error.strerror}): choose another --workdir') from error
