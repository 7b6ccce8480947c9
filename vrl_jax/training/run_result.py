"""`RunResult`: the model, history, plot, report and export of one run of `fit`."""

import functools
import math
import os
import pathlib
from typing import Any

import jax
from matplotlib.figure import Figure

from vrl_jax import report
from vrl_jax.algorithms import Algorithm
from vrl_jax.engine.state import Model
from vrl_jax.tasks.task import Task
from vrl_jax.training.consensus import consensus_model
from vrl_jax.training.export import export_model
from vrl_jax.training.metrics_file import read_lines
from vrl_jax.training.run_directory import read_json


class RunResult:
  """The result of a run, read from its directory.

  Attributes:
    name: the name of the run.
    workdir: the run directory, with config.json, metrics.jsonl, summary.json and checkpoints.

  >>> import numpy as np, optax, vrl_jax
  >>> algorithm = vrl_jax.vrl_sgd(optax.sgd(0.1))
  >>> loss = lambda x, batch: (x - batch) ** 2
  >>> result = vrl_jax.fit(
  ...   loss, np.arange(4.0), algorithm=algorithm, params=np.float32(0), workers=4, batch_size=1, epochs=80, period=4, quiet=True
  ... )
  >>> result.summary['status'], round(float(result.params), 3)
  ('finished', 1.5)
  """

  def __init__(self, name: str, workdir: pathlib.Path, *, algorithm: Algorithm, task: Task):
    self.name = name
    self.workdir = workdir
    self._algorithm = algorithm
    self._task = task

  def __repr__(self) -> str:
    summary = read_json(self.workdir / 'summary.json') or {}
    about = ', '.join(f'{name}={summary[name]!r}' for name in ('status', 'step', 'train_loss') if name in summary)
    return f'RunResult({self.name!r}, {about}, workdir={str(self.workdir)!r})'

  @property
  def params(self) -> Any:
    """The parameters of the consensus model at the end of the run, as NumPy arrays."""
    return self._model.params

  @property
  def batch_stats(self) -> Any:
    """The statistics of batch normalisation of the consensus model; empty if it has none."""
    return self._model.batch_stats

  @functools.cached_property
  def _model(self) -> Model:
    return consensus_model(self.workdir, algorithm=self._algorithm, params=self._shapes)

  @property
  def _shapes(self) -> Any:
    config = read_json(self.workdir / 'config.json') or {}
    with jax.enable_x64(bool(config.get('x64'))):
      return jax.eval_shape(self._task.init, jax.random.key(0))

  @functools.cached_property
  def summary(self) -> dict[str, Any]:
    """The content of summary.json: the last log line, `status`, `total_steps` and more."""
    return read_json(self.workdir / 'summary.json') or {}

  @functools.cached_property
  def history(self) -> dict[str, list[float]]:
    """The log lines as columns: `step`, `epoch`, `train_loss` and more; `pandas.DataFrame(result.history)` is a table."""
    return columns(list(read_lines(self.workdir / 'metrics.jsonl')))

  def plot(self, y: str = 'train_loss', x: str | tuple[str, ...] = ('epoch', 'communications')) -> Figure:
    """Draws a metric as a matplotlib figure; `savefig` writes it to a file.

    Args:
      y: a column of the history.
      x: the columns on the x axes, one panel each.
    """
    return report.plot(report.read_any(self.workdir), y, x)

  def report(self) -> pathlib.Path:
    """Writes the report, a self-contained HTML page with charts and tables, into the run directory; returns its path."""
    return report.write_report(self.workdir)['report']

  def export(self, path: str | os.PathLike, *, overwrite: bool = False) -> str:
    """Writes the model at the end of the run to a file, see :func:`vrl_jax.export_model`; returns a line about it."""
    return export_model(self.workdir, path, algorithm=self._algorithm, params=self._shapes, overwrite=overwrite)


def columns(lines: list[dict[str, Any]]) -> dict[str, list[Any]]:
  """Log lines as columns of equal length; what a line lacks is NaN.

  >>> columns([{'step': 0, 'step_loss': None}, {'step': 5, 'step_loss': 0.5}])
  {'step': [0, 5], 'step_loss': [nan, 0.5]}
  """
  names = dict.fromkeys(name for line in lines for name in line)
  value = lambda line, name: math.nan if line.get(name) is None else line[name]
  return {name: [value(line, name) for line in lines] for name in names}
