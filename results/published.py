"""The curves that the paper's authors published for LeNet on MNIST, and how close ours are to them.

`published.json` holds the train losses of their CSV files, four digits of each: Liang et al., arXiv:1912.12844. The
files themselves are theirs and not part of this project.
"""

import json
import math
import pathlib
from collections.abc import Sequence

import numpy as np

from results import FOLDER
from vrl_jax.errors import DataError
from vrl_jax.report import names, series
from vrl_jax.report.records import Run, Sweep
from vrl_jax.report.reference import Reference, read_reference

STORED = FOLDER / 'published.json'
_SOURCE = 'train loss after each epoch, LeNet on MNIST, by the authors of arXiv:1912.12844; the first is the start'


def store(folder: pathlib.Path) -> pathlib.Path:
  """Writes the train losses of the CSV files in a folder to `published.json`."""
  files = sorted(folder.glob('*.csv'))
  if not files:
    raise DataError(f'{folder}: no CSV files')
  losses = {file.stem: [float(f'{x:.4g}') for x in read_reference(file).columns['train_loss']] for file in files}
  lines = ',\n'.join(f'{json.dumps(key)}: {json.dumps(values)}' for key, values in losses.items())
  STORED.write_text(f'{{"source": {json.dumps(_SOURCE)},\n{lines}}}\n')
  return STORED


def references(identical: bool) -> dict[str, Reference]:
  """The published curves of one case, by algorithm."""
  found = {}
  case = 'identical_' if identical else 'non_identical_'
  for stem, losses in json.loads(STORED.read_text()).items():
    if stem.startswith(case):
      key = stem.removeprefix(case)
      found[key] = Reference(f'{names.algorithm(key)} (published)', key, identical, {'train_loss': np.array(losses)})
  return found


def of(sweep: Sweep) -> dict[str, Reference]:
  """The published curves of a sweep's case."""
  return references(sweep.runs[0].config['partition'] == 'identical')


def distances(sweep: Sweep, algorithm: str) -> np.ndarray:
  """|ln(ours / published)| of the train loss after epoch 1, 2, … as far as both go."""
  runs = [run for run in sweep.runs if run.algorithm == algorithm]
  theirs = of(sweep)[algorithm].columns['train_loss']
  last = math.floor(min(run.column('epoch')[-1] for run in runs) + 1e-6)
  epochs = np.arange(1, min(len(theirs) - 1, last) + 1)
  return np.abs(np.log([loss_after(runs, epoch) for epoch in epochs]) - np.log(theirs[epochs]))


def loss_after(runs: Sequence[Run], epoch: float) -> float:
  """The train loss after an epoch, mean over the runs.

  Log points fall on the ends of rounds: between two of them the logarithm is interpolated.
  """
  curve = series.curve(runs, 'epoch', 'train_loss')
  return float(np.exp(np.interp(epoch, curve.x, np.log(curve.mean))))
