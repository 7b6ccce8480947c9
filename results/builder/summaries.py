"""Stores sweeps as small files: a JSON line with the common settings, and one for each run.

A file has the options of the command, all config fields and the log points with few digits: all that the tables and
figures need. `read` returns the sweep that `vrl_jax.report` would read from the run directories.
"""

import json
import math
import pathlib
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

from vrl_jax import report
from vrl_jax.cli.flags import parse
from vrl_jax.config.table import RESULT_ROLES, with_roles
from vrl_jax.errors import DataError, UserError
from vrl_jax.report.records import Run, Sweep, to_number
from vrl_jax.training.sweep import is_sweep, sweep_runs

_DIGITS = 5
_METRICS = (
  'step epoch communications bytes_communicated train_loss test_loss train_accuracy test_accuracy consensus_distance '
  'correction_norm variance_among_workers distance_to_optimum seconds'
).split()


class Summary(NamedTuple):
  """A stored sweep.

  Attributes:
    name: the stem of the file.
    arguments: the options of `launch.py`, without `data_dir` and `workdir`.
    jax: the version of JAX.
    examples: the number of training examples; 0 if there are none.
    sweep: the runs.
  """

  name: str
  arguments: tuple[str, ...]
  jax: str
  examples: int
  sweep: Sweep


def store(name: str, folder: pathlib.Path, arguments: Sequence[str], target: pathlib.Path) -> pathlib.Path:
  """Writes `target/NAME.jsonl` from a run or sweep directory.

  Args:
    name: the name of the summary.
    folder: the run or sweep directory.
    arguments: the options of `launch.py`; the path of the config file is relative to the root of the project.
    target: the directory of the summaries.

  Raises:
    UserError: a run is unfinished, or differs from what `launch.py` would run with these options.
  """
  sweep = report.read_any(folder)
  unfinished = [run.name for run in sweep.runs if run.status not in ('finished', 'diverged')] + list(sweep.missing)
  if unfinished:
    raise UserError(
      f'{folder}: {len(unfinished)} of the runs are not finished, such as {unfinished[0]!r}; finish them first'
    )
  check_arguments(arguments, sweep)
  configs = [with_roles(dict(run.config), *RESULT_ROLES) for run in sweep.runs]
  same = {k: v for k, v in configs[0].items() if all(k in c and c[k] == v for c in configs)}
  head = {
    'title': sweep.title,
    'arguments': list(arguments),
    'jax': metadata.version('jax'),
    'examples': _examples(sweep.runs[0]),
    'figures': sweep.figures,
    'config': same,
  }
  lines = [head]
  for run, config in zip(sweep.runs, configs):
    different = {k: v for k, v in config.items() if k not in same}
    lines.append({'name': run.name, 'status': run.status, 'config': different, **_metrics(run, sweep.figures)})
  path = target / f'{name}.jsonl'
  path.write_text(''.join(json.dumps(line, ensure_ascii=False, separators=(',', ':')) + '\n' for line in lines))
  return path


def read(path: pathlib.Path) -> Summary:
  """Reads a summary that `store` has written."""
  try:
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    runs = tuple(
      Run(
        name=line['name'],
        config=head['config'] | line['config'],
        metrics=_rows(line['metrics']),
        summary={'status': line['status'], **line['final']},
        is_named=True,
      )
      for line in lines
    )
    sweep = Sweep(head['title'], runs, tuple(head['figures']))
    return Summary(path.stem, tuple(head['arguments']), head['jax'], head['examples'], sweep)
  except FileNotFoundError:
    raise DataError(f'{path}: no such file; create it with `python -m results store`') from None
  except (ValueError, KeyError, TypeError) as error:
    raise DataError(f'{path}: is damaged ({error}); restore it, or store the runs again') from None


def check_arguments(arguments: Sequence[str], sweep: Sweep) -> None:
  """Raises UserError unless `launch.py` would run this sweep; fields that only one of the two has are ignored."""
  config, *_ = parse(['launch.py', *arguments])
  wanted = sweep_runs(config) if is_sweep(config) else [(sweep.runs[0].name, config)]
  names = [name for name, _ in wanted]
  if names != [run.name for run in sweep.runs]:
    raise UserError(
      f'{" ".join(arguments)}: would run {names}, but the stored runs are {[run.name for run in sweep.runs]}'
    )
  for (name, config), run in zip(wanted, sweep.runs):
    fields = json.loads(config.to_json_best_effort())
    for key in sorted(with_roles(fields, *RESULT_ROLES).keys() & run.config.keys()):
      if fields[key] != run.config[key]:
        raise UserError(
          f'{name}: {key}={run.config[key]!r} in the stored run, but {fields[key]!r} with {" ".join(arguments)}'
        )


def _examples(run):
  if run.partition is None:
    return 0
  shards = [sum(row) for row in run.partition['table']]
  return shards[0] if run.config['partition'] == 'identical' else sum(shards) + run.partition['dropped']


def _metrics(run, figures):
  """The log points of a run; if every step is logged, those of the metrics in figures and the last value of others."""
  logged = [key for key in _METRICS if any(key in line for line in run.metrics)]
  shown = {key for spec in figures for key in ('step', spec['y'], *_tuple(spec['x']))}
  every = [key for key in logged if key in shown] if run.setting('log_every_step') and shown else logged
  return {
    'final': {key: _short(run.metrics[-1].get(key)) for key in logged if key not in every},
    'metrics': {key: [_short(line.get(key)) for line in run.metrics] for key in every},
  }


def _tuple(value):
  return (value,) if isinstance(value, str) else tuple(value)


def _short(value):
  if value is None or not math.isfinite(value):
    return None
  return int(value) if float(value).is_integer() else float(f'{value:.{_DIGITS}g}')


def _rows(columns):
  lengths = {len(values) for values in columns.values()}
  if len(lengths) != 1:
    raise ValueError(f'columns of different lengths: {sorted(lengths)}')
  return tuple(dict(zip(columns, map(to_number, row))) for row in zip(*columns.values()))
