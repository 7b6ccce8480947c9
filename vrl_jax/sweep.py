"""Several runs that differ in a few fields, compared at the end."""

import contextlib
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import ml_collections

from vrl_jax import agreement, hosts, report
from vrl_jax.config import validate
from vrl_jax.errors import UserError
from vrl_jax.runfolder import check_same_config, lock, replace_text
from vrl_jax.train import Diverged, train_and_evaluate

_OF_THE_SWEEP = ('sweep', 'seeds', 'figure', 'title', 'may_diverge')


class SweepResult(NamedTuple):
  """What a sweep leaves.

  Attributes:
    files: of the report.
    diverged: the names of the runs that did.

  >>> SweepResult({'report': pathlib.Path('runs/demo/report.html')}, diverged=['Local SGD, k=100']).diverged
  ['Local SGD, k=100']
  """

  files: dict[str, pathlib.Path]
  diverged: list[str]


def run_sweep(config: ml_collections.ConfigDict, workdir: str | os.PathLike) -> SweepResult:
  """Runs every entry of `config.sweep`, with each of `config.seeds`, into a sub-folder; then a table and a report.

  Finished runs are not run again, so the same command goes on where it was stopped. A run that diverges is noted and
  the others go on; launch.py then ends with status 4, unless the config's `may_diverge` says that it is a result.

  Args:
    config: a whole config with `sweep`, a tuple of dicts: `name`, and the fields that this run has otherwise; or with
      `seeds`, a tuple of numbers; or both; and, if it likes, `title` and `figure` (see
      `vrl_jax.report.comparison_figure`).
    workdir: the sweep's folder.

  Returns:
    The files of the report and the names of the runs that diverged.

  Raises:
    UserError: before anything is written, if an entry is wrong or the folder holds runs of other configs.

  >>> import contextlib, io, tempfile
  >>> from vrl_jax.config_files import load_config
  >>> config = load_config('quadratic')
  >>> config.log_every_step = False
  >>> config.steps, config.sweep = 40, ({'name': 'S-SGD', 'algorithm': 's_sgd'}, {'name': 'VRL-SGD'})
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   result = run_sweep(config, workdir)
  >>> sorted(result.files), result.diverged
  (['consensus', 'distance', 'loss', 'report', 'variance'], [])
  """
  folder = pathlib.Path(workdir)
  agreement.require_same(agreement.run_fields(config))
  runs = sweep_runs(config)
  for name, run_config in runs:
    _named(name, validate, run_config)
    if hosts.is_main():
      check_same_config(folder / name, run_config)
  if hosts.is_main() and (folder / 'config.json').exists():
    raise UserError(f'{folder}: holds a single run; choose another --workdir for the sweep')
  diverged, files = [], {}
  with lock(folder) if hosts.is_main() else contextlib.nullcontext():
    _write_index(config, folder)
    for number, (name, run_config) in enumerate(runs, 1):
      print(f'[{number}/{len(runs)}] {name}')
      try:
        train_and_evaluate(run_config, folder / name)
      except Diverged as error:
        print(error)
        diverged.append(name)
      jax.clear_caches()  # a process may hold only so many compiled programs, and the next run has its own
    if hosts.is_main():
      files = report.write_report(folder)
      print(report.comparison_table(report.read_sweep(folder)))
  for name, path in files.items():
    print(f'{name}: {path}')
  return SweepResult(files, diverged)


def _named(name, check, *args):
  try:
    check(*args)
  except UserError as error:
    raise UserError(f'sweep entry {name!r}: {error}') from error


def is_sweep(config: ml_collections.ConfigDict) -> bool:
  """Whether the config describes several runs.

  >>> from vrl_jax.config import default_config
  >>> config = default_config()
  >>> is_sweep(config)
  False
  >>> config.seeds = (0, 1, 2)
  >>> is_sweep(config)
  True
  """
  return bool(config.get('sweep') or config.get('seeds'))


def sweep_entries(config: ml_collections.ConfigDict) -> list[dict[str, Any]]:
  """The entries of `config.sweep`, each with each of `config.seeds`.

  >>> config = ml_collections.ConfigDict({'seeds': (0, 1), 'sweep': ({'name': 'k=5', 'period': 5},)})
  >>> sweep_entries(config)
  [{'name': 'k=5, seed=0', 'period': 5, 'seed': 0}, {'name': 'k=5, seed=1', 'period': 5, 'seed': 1}]
  """
  sweep, seeds = config.get('sweep') or (), config.get('seeds')
  if not isinstance(sweep, tuple | list) or not all(isinstance(entry, Mapping) for entry in sweep):
    raise UserError(f'sweep={sweep!r:.80}, must be a tuple of dicts')
  entries = [dict(entry) for entry in sweep]
  if not seeds:
    return entries
  fixed = [entry.get('name') for entry in entries if 'seed' in entry]
  if fixed:
    raise UserError(f'seeds={tuple(seeds)}: the sweep entry {fixed[0]!r} has a seed of its own')
  entries = entries or [{'name': config.algorithm}]
  named = lambda name, seed: f'{name}, seed={seed}' if name else name
  return [e | {'name': named(e.get('name'), seed), 'seed': seed} for e in entries for seed in seeds]


def sweep_runs(config: ml_collections.ConfigDict) -> list[tuple[str, ml_collections.ConfigDict]]:
  """The (name, config) of every run of the sweep.

  >>> from vrl_jax.config import default_config
  >>> config = default_config()
  >>> config.seeds = (0, 1)
  >>> [(name, run.seed) for name, run in sweep_runs(config)]
  [('vrl_sgd, seed=0', 0), ('vrl_sgd, seed=1', 1)]
  """
  runs = []
  for overrides in sweep_entries(config):
    name = overrides.pop('name', None)
    if not isinstance(name, str) or not re.fullmatch(r'[\w.=, +-]+', name) or set(name) <= {'.', ' '}:
      raise UserError(f'sweep: name={name!r}, every entry needs one that can be a folder')
    run = config.copy_and_resolve_references().unlock()
    for key in _OF_THE_SWEEP:
      if key in run:
        del run[key]
    for key, value in overrides.items():
      if key not in run:
        raise UserError(f'sweep entry {name!r}: unknown field {key!r}')
      try:
        run[key] = value
      except (TypeError, ValueError) as error:
        raise UserError(f'sweep entry {name!r}: {error}') from error
    runs.append((name, run))
  names = [name for name, _ in runs]
  if len(set(names)) < len(names):
    raise UserError(f'sweep: the names {sorted({n for n in names if names.count(n) > 1})} occur more than once')
  return runs


@hosts.main_only
def _write_index(config: ml_collections.ConfigDict, folder: pathlib.Path) -> None:
  index: dict[str, Any] = {
    'title': config.get('title', config.task),
    'runs': [{'name': e.pop('name'), 'overrides': e} for e in sweep_entries(config)],
    'figure': [dict(spec) for spec in config.get('figure', ())],
  }
  replace_text(folder / 'sweep.json', json.dumps(index, indent=2) + '\n')
