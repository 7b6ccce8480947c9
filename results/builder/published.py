"""The curves that the authors of the paper published for LeNet on MNIST, and their distance from ours.

`data/published.json` has the train losses of their CSV files with four significant digits (Liang et al.,
arXiv:1912.12844). The files themselves are not part of this project.
"""

import json
import math
import pathlib
from collections.abc import Sequence

import numpy as np

from results import PUBLISHED
from vrl_jax.errors import DataError
from vrl_jax.report import names, series
from vrl_jax.report.records import Run, Sweep
from vrl_jax.report.reference import Reference, read_reference

_SOURCE = 'train loss after each epoch, LeNet on MNIST, by the authors of arXiv:1912.12844; the first is the start'


def store(folder: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """Writes the train losses of the CSV files in a directory to `target`."""
  files = sorted(folder.glob('*.csv'))
  if not files:
    raise DataError(f'{folder}: no CSV files; give the directory of the published files')
  losses = {file.stem: [float(f'{x:.4g}') for x in read_reference(file).columns['train_loss']] for file in files}
  lines = ',\n'.join(f'{json.dumps(key)}: {json.dumps(values)}' for key, values in losses.items())
  target.write_text(f'{{"source": {json.dumps(_SOURCE)},\n{lines}}}\n')
  return target


def references(identical: bool, path: pathlib.Path = PUBLISHED) -> dict[str, Reference]:
  """The published curves with identical or non-identical data, by algorithm."""
  found = {}
  prefix = 'identical_' if identical else 'non_identical_'
  for stem, losses in json.loads(path.read_text()).items():
    if stem.startswith(prefix):
      key = stem.removeprefix(prefix)
      found[key] = Reference(f'{names.algorithm(key)} (published)', key, identical, {'train_loss': np.array(losses)})
  return found


def matching(sweep: Sweep, path: pathlib.Path = PUBLISHED) -> dict[str, Reference]:
  """The published curves with the same kind of partition as a sweep, by algorithm."""
  return references(sweep.runs[0].config['partition'] == 'identical', path)


def distances(sweep: Sweep, algorithm: str, path: pathlib.Path = PUBLISHED) -> np.ndarray:
  """|ln(ours / published)| of the train loss after epoch 1, 2, … up to the last epoch of both."""
  runs = [run for run in sweep.runs if run.algorithm == algorithm]
  theirs = matching(sweep, path)[algorithm].columns['train_loss']
  last = math.floor(min(run.column('epoch')[-1] for run in runs) + 1e-6)
  epochs = np.arange(1, min(len(theirs) - 1, last) + 1)
  return np.abs(np.log([loss_at(runs, epoch) for epoch in epochs]) - np.log(theirs[epochs]))


def loss_at(runs: Sequence[Run], epoch: float) -> float:
  """The train loss after an epoch, as the mean over the runs.

  Log points are at the ends of rounds; between two of them the logarithm is interpolated.
  """
  curve = series.curve(runs, 'epoch', 'train_loss')
  return float(np.exp(np.interp(epoch, curve.x, np.log(curve.mean))))
