"""`Comparison`: the results of several runs of `fit` by name, with one plot and one report."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np
from matplotlib.figure import Figure

from vrl_jax import report
from vrl_jax.algorithms import Algorithm
from vrl_jax.errors import UserError
from vrl_jax.report import names
from vrl_jax.tasks.task import Task
from vrl_jax.training.fit_name import name_of
from vrl_jax.training.run_result import RunResult, columns
from vrl_jax.training.sweep import run_sweep, sweep_entries
from vrl_jax.training.sweep_index import run_folders


class Comparison(Mapping[str, RunResult]):
  """The results of several runs by name, such as `'VRL-SGD'`, or `'VRL-SGD, seed=1'` with seeds.

  Attributes:
    workdir: the directory of the runs, with a sub-directory for each.
    diverged: the names of the runs whose loss became infinite or NaN.

  >>> import numpy as np, optax, vrl_jax
  >>> algorithms = {'S-SGD': vrl_jax.s_sgd(optax.sgd(0.1)), 'VRL-SGD': vrl_jax.vrl_sgd(optax.sgd(0.1))}
  >>> loss = lambda x, batch: (x - batch) ** 2
  >>> results = vrl_jax.fit(
  ...   loss, np.arange(4.0), algorithm=algorithms, params=np.float32(0), workers=4, batch_size=1, steps=80, period=4, quiet=True
  ... )
  >>> {name: result.summary['communications'] for name, result in results.items()}
  {'S-SGD': 80, 'VRL-SGD': 20}
  """

  def __init__(self, workdir: pathlib.Path, results: Mapping[str, RunResult], diverged: list[str]):
    self.workdir = workdir
    self.diverged = diverged
    self._results = dict(results)

  def __getitem__(self, name: str) -> RunResult:
    return self._results[name]

  def __iter__(self) -> Iterator[str]:
    return iter(self._results)

  def __len__(self) -> int:
    return len(self._results)

  def __repr__(self) -> str:
    return f'Comparison({", ".join(map(repr, self))}, workdir={str(self.workdir)!r})'

  @property
  def history(self) -> dict[str, list[Any]]:
    """The log lines of all runs as columns, with the name of the run in the column `run`."""
    lines = []
    for name, result in self.items():
      rows = zip(*result.history.values())
      lines += [{'run': name} | dict(zip(result.history, row)) for row in rows]
    return columns(lines)

  def plot(self, y: str = 'train_loss', x: str | tuple[str, ...] = ('epoch', 'communications')) -> Figure:
    """As :meth:`RunResult.plot`, with one line per algorithm, and a band if there are several seeds."""
    return report.plot(report.read_any(self.workdir), y, x)

  def report(self) -> pathlib.Path:
    """Writes the report of all runs into `workdir`; returns its path."""
    return report.write_report(self.workdir)['report']


def compare(
  config: ml_collections.ConfigDict,
  workdir: pathlib.Path,
  task: Task,
  algorithms: Mapping[str, Algorithm],
  seeds: Sequence[int] | None = None,
) -> Comparison:
  """Runs a config with each of the algorithms and each of the seeds; see :func:`vrl_jax.fit`.

  >>> import contextlib, io, tempfile, optax, vrl_jax
  >>> config = vrl_jax.load_config('quadratic')
  >>> config.update(steps=40, log_every_step=False)
  >>> algorithms = {'slow': vrl_jax.local_sgd(optax.sgd(0.001)), 'fast': vrl_jax.local_sgd(optax.sgd(0.01))}
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   results = compare(config, pathlib.Path(workdir), vrl_jax.make_task(config), algorithms)
  >>> list(results)
  ['slow', 'fast']
  """
  if seeds is not None and (isinstance(seeds, str) or not isinstance(seeds, Sequence | np.ndarray)):
    raise UserError(f'seeds={seeds!r:.80}, must be a sequence of integers')
  seeds = () if seeds is None else [int(seed) for seed in seeds]
  labels = {name: _label(name, algorithm) for name, algorithm in algorithms.items()}
  config.seeds = tuple(seeds)
  config.sweep = tuple({'name': name, 'algorithm': label} for name, label in labels.items())
  by_label = {labels[name]: algorithm for name, algorithm in algorithms.items()}
  diverged = run_sweep(config, workdir, task=task, algorithms=by_label).diverged
  runs = [entry['name'] for entry in sweep_entries(config)]
  folders = run_folders(runs, workdir)
  each = [algorithm for algorithm in algorithms.values() for _ in range(len(seeds) or 1)]
  results = {
    name: RunResult(name, workdir / folders[name], algorithm=algorithm, task=task)
    for name, algorithm in zip(runs, each)
  }
  return Comparison(workdir, results, diverged)


def _label(name, algorithm):
  """The value of `config.algorithm`: a registered name if it is displayed as `name`, so that the report knows S-SGD."""
  made_by = name_of(algorithm)
  return made_by if names.algorithm(made_by) == name else name
