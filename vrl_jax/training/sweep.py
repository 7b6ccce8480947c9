"""Sweeps: several runs that differ in a few fields, with one report."""

import contextlib
import os
import pathlib
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import ml_collections

from vrl_jax import report
from vrl_jax.algorithms import Algorithm
from vrl_jax.cluster import consistency, processes
from vrl_jax.config.fields import set_algorithm, validate, without_algorithm
from vrl_jax.config.table import Role, role_of
from vrl_jax.errors import Diverged, UserError
from vrl_jax.report.specs import check_spec
from vrl_jax.system.signals import StopRequest
from vrl_jax.system.storage import expand_home, remove_abandoned
from vrl_jax.tasks.task import Task
from vrl_jax.training import fingerprint
from vrl_jax.training.directory_lock import DirectoryLock
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.run_directory import check_same_config
from vrl_jax.training.sweep_index import check_keeps_runs, run_folders, write_index


class SweepResult(NamedTuple):
  """The result of a sweep.

  Attributes:
    files: the files of the report.
    diverged: the names of the runs that diverged.

  >>> SweepResult({'report': pathlib.Path('runs/demo/report.html')}, diverged=['Local SGD, k=100']).diverged
  ['Local SGD, k=100']
  """

  files: dict[str, pathlib.Path]
  diverged: list[str]


def run_sweep(
  config: ml_collections.ConfigDict,
  workdir: str | os.PathLike,
  stop: StopRequest | None = None,
  *,
  task: Task | None = None,
  algorithms: Mapping[str, Algorithm] | None = None,
) -> SweepResult:
  """Runs every entry of `config.sweep` with each of `config.seeds`, then prints a table and writes a report.

  Each run has a sub-directory (see `sweep_index.folder_name`). Finished runs are not repeated, so the same command resumes
  a sweep. If a run diverges, the others still run; launch.py then ends with status 4, unless `config.may_diverge` is set.

  Args:
    config: a complete config with `sweep`, a tuple of dicts: `name`, and the fields in which this run differs; or with
      `seeds`, a tuple of integers; or both. Optionally `title` and `figure` (see `vrl_jax.report.comparison_figure`).
    workdir: the directory of the sweep.
    stop: as in `vrl_jax.train_and_evaluate`.
    task: as in `vrl_jax.train_and_evaluate`; all runs train it.
    algorithms: as `algorithm` in `vrl_jax.train_and_evaluate`, for the runs whose field `algorithm` is a key of it.

  Returns:
    The files of the report and the names of the runs that diverged.

  Raises:
    UserError: before anything is written, if an entry is wrong or the directory holds other runs.

  >>> import contextlib, io, tempfile
  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('quadratic')
  >>> config.log_every_step = False
  >>> config.steps, config.sweep = 40, ({'name': 'S-SGD', 'algorithm': 's_sgd'}, {'name': 'VRL-SGD'})
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   result = run_sweep(config, workdir)
  >>> sorted(result.files), result.diverged
  (['consensus', 'distance', 'loss', 'report', 'variance'], [])
  """
  directory = expand_home(workdir, 'workdir')
  consistency.require_same(fingerprint.run_fields(config))
  algorithms = algorithms or {}
  runs = sweep_runs(config, algorithms)
  figures = sweep_figures(config)
  folders = processes.from_main(lambda: run_folders([name for name, _ in runs], directory))
  for name, run_config in runs:
    _named(name, lambda run: validate(run, given_algorithm=run.algorithm in algorithms), run_config)
    if processes.is_main():
      check_same_config(directory / folders[name], run_config)
  if processes.is_main():
    if (directory / 'config.json').exists():
      raise UserError(f'{directory}: holds a single run; choose another --workdir for the sweep')
    check_keeps_runs(list(folders), directory)
  diverged: list[str] = []
  show_data = _print_changes()
  files: dict[str, pathlib.Path] = {}
  with DirectoryLock.acquire(directory) if processes.is_main() else contextlib.nullcontext() as lock:
    if processes.is_main():
      check_keeps_runs(list(folders), directory)
      remove_abandoned(directory)
      title = config.get('title') or config.task
      write_index(sweep_entries(config), folders, directory, title=title, figure=figures)
    for number, (name, run_config) in enumerate(runs, 1):
      print(f'[{number}/{len(runs)}] {name}')
      try:
        algorithm = algorithms.get(run_config.algorithm)
        train_and_evaluate(
          run_config, directory / folders[name], stop, task=task, algorithm=algorithm, show_data=show_data
        )
      except Diverged as error:
        print(error)
        diverged.append(name)
      jax.clear_caches()  # the next run has other programs, and XLA crashes if a process holds too many
      if lock:
        lock.require()
    if processes.is_main():
      files = report.write_report(directory)
      print(report.comparison_table(report.read_sweep(directory)))
  for name, path in files.items():
    print(f'{name}: {path}')
  return SweepResult(files, diverged)


def _print_changes():
  """A function that prints a text unless it equals the last one."""
  last = None

  def show(text: str) -> None:
    nonlocal last
    if text != last:
      print(text)
    last = text

  return show


def _named(name, check, *args):
  try:
    check(*args)
  except UserError as error:
    raise UserError(f'sweep entry {name!r}: {error}') from error


def is_sweep(config: ml_collections.ConfigDict) -> bool:
  """Whether the config describes several runs.

  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> is_sweep(config)
  False
  >>> config.seeds = (0, 1, 2)
  >>> is_sweep(config)
  True
  """
  return bool(config.get('sweep') or config.get('seeds'))


def sweep_figures(config: ml_collections.ConfigDict) -> list[dict[str, Any]]:
  """The specs of the report's figures; raises UserError if one is wrong whatever the runs are.

  >>> config = ml_collections.ConfigDict({'figure': ({'x': 'step'}, ml_collections.ConfigDict({'x': 'epoch'}))})
  >>> sweep_figures(config)
  [{'x': 'step'}, {'x': 'epoch'}]
  """
  specs = [dict(s) if isinstance(s, ml_collections.ConfigDict) else s for s in config.get('figure', ())]
  for spec in specs:
    check_spec(spec)
  return [dict(spec) for spec in specs]


def sweep_entries(config: ml_collections.ConfigDict) -> list[dict[str, Any]]:
  """The entries of `config.sweep`, repeated for each of `config.seeds`.

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
    raise UserError(f'seeds={tuple(seeds)}: the sweep entry {fixed[0]!r} already sets seed')
  entries = entries or [{'name': re.split('[:.]', config.algorithm)[-1]}]
  named = lambda name, seed: f'{name}, seed={seed}' if name else name
  return [e | {'name': named(e.get('name'), seed), 'seed': seed} for e in entries for seed in seeds]


def sweep_runs(
  config: ml_collections.ConfigDict, given: Collection[str] = ()
) -> list[tuple[str, ml_collections.ConfigDict]]:
  """The (name, config) pairs of the runs of a sweep; `given` are the names of algorithms that are objects.

  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> config.seeds = (0, 1)
  >>> [(name, run.seed) for name, run in sweep_runs(config)]
  [('vrl_sgd, seed=0', 0), ('vrl_sgd, seed=1', 1)]
  """
  runs = []
  for overrides in sweep_entries(config):
    name = overrides.pop('name', None)
    if not isinstance(name, str) or not re.fullmatch(r'[\w.=, +-]+', name) or set(name) <= {'.', ' ', ','}:
      raise UserError(f'sweep: name={name!r}, every entry needs a name that can be a directory')
    run = config.copy_and_resolve_references().unlock()
    for key in [key for key in run if role_of(key) is Role.SWEEP]:
      del run[key]
    algorithm = overrides.pop('algorithm', run.algorithm)
    if algorithm in given:
      run.algorithm = algorithm
      run = without_algorithm(run)
    else:
      _named(name, set_algorithm, run, algorithm)
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
    repeated = sorted({name for name in names if names.count(name) > 1})
    raise UserError(f'sweep: the names {repeated} occur more than once')
  return runs
