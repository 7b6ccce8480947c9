"""Reads published curves from CSV files with one row per epoch.

The columns are train loss, train accuracy in percent, test loss and test accuracy in percent; row 0 is before training.
A header is allowed. The file name gives the algorithm and the partition: `non_identical_vrl_sgd.csv`.
"""

import csv
import math
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vrl_jax import errors
from vrl_jax.report import names
from vrl_jax.report.records import Run
from vrl_jax.system.storage import expand_home

_COLUMNS = ('train_loss', 'train_accuracy', 'test_loss', 'test_accuracy')


class Reference(NamedTuple):
  """One published run.

  Attributes:
    label: the entry in the legend.
    algorithm: the algorithm's registry key.
    identical: whether the workers had identical data; None if the file name does not say.
    columns: an array for each metric, with one value per epoch.

  >>> reference = Reference('VRL-SGD (published)', 'vrl_sgd', False, {'train_loss': np.array([2.3, 0.4])})
  >>> len(reference.columns['train_loss']) - 1  # epochs; row 0 is before training
  1
  """

  label: str
  algorithm: str
  identical: bool | None
  columns: dict[str, np.ndarray]


def read_reference(path: str | os.PathLike) -> Reference:
  """Reads a CSV file of published curves.

  >>> import pathlib, tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'non_identical_vrl_sgd.csv')
  ...   _ = path.write_text('2.3,11.2,2.3,11.4\\n0.4,88.0,0.5,87.1\\n')
  ...   reference = read_reference(path)
  >>> reference.label, reference.identical, reference.columns['test_accuracy']
  ('VRL-SGD (published)', False, array([11.4, 87.1]))
  """
  path = expand_home(path, 'reference')
  rows = []
  try:
    with path.open(newline='', encoding='utf-8') as file:
      for number, row in enumerate(csv.reader(file), start=1):
        values = _values(row)
        if values is None and number > 1 or len(row) != len(_COLUMNS):
          raise errors.DataError(f'{path}: row {number} must be {len(_COLUMNS)} numbers: {", ".join(_COLUMNS)}')
        rows += [values] if values else []
  except FileNotFoundError:
    raise errors.DataError(f'{path}: no such file') from None
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise errors.DataError(f'{path}: cannot be read ({error})') from None
  if not rows:
    raise errors.DataError(f'{path}: the file has no rows')
  stem = path.stem.lower().replace('-', '_')
  known = [name for name in names.ALGORITHMS if re.search(rf'(^|_){name}(_|$)', stem)]
  algorithm = max(known, key=len) if known else stem
  identical = None if 'identical' not in stem else not re.search('non_?identical', stem)
  label = f'{names.algorithm(algorithm)} (published)'
  return Reference(label, algorithm, identical, dict(zip(_COLUMNS, np.array(rows).T)))


def fitting(references: Iterable[Reference], runs: Sequence[Run]) -> list[Reference]:
  """The references with the same kind of partition, identical or not, as the runs; all if there are none.

  >>> published = [Reference('VRL-SGD (published)', 'vrl_sgd', identical, {}) for identical in (True, False)]
  >>> run = Run('a', {'algorithm': 'vrl_sgd', 'partition': 'by_class'}, ({'step': 5},))
  >>> [one.identical for one in fitting(published, [run])]
  [False]
  """
  references = list(references)
  identical = {run.setting('partition') == 'identical' for run in runs if run.setting('partition') is not None}
  same = [one for one in references if one.identical is None or one.identical in identical] or references
  if len({one.identical for one in same} - {None}) < 2:
    return same
  suffixes = {True: ', identical)', False: ', non-identical)', None: ')'}
  return [one._replace(label=one.label.removesuffix(')') + suffixes[one.identical]) for one in same]


def _values(row):
  try:
    values = [float(cell) for cell in row]
  except ValueError:
    return None
  return values if all(map(math.isfinite, values)) else None
