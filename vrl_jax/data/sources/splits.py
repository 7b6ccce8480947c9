"""The training and test split of a data set, as NumPy arrays."""

from typing import NamedTuple

import numpy as np

from vrl_jax.errors import DataError


class Splits(NamedTuple):
  """A data set in memory.

  Attributes:
    train: arrays by name, all with the same leading size; one is `'label'` (int32, 0 to the number of classes − 1).
    test: the same for the test split.
    class_names: the name of each label.

  >>> part = {'input': np.zeros((3, 2)), 'label': np.array([0, 1, 1], np.int32)}
  >>> splits = Splits(train=part, test=part, class_names=('cat', 'dog'))
  >>> [splits.class_names[label] for label in splits.train['label']]
  ['cat', 'dog', 'dog']
  """

  train: dict[str, np.ndarray]
  test: dict[str, np.ndarray]
  class_names: tuple[str, ...]


def check_labels(labels: np.ndarray, num_classes: int, where: str) -> np.ndarray:
  """Returns `labels` as int32.

  Args:
    labels: a vector of integers.
    num_classes: labels must be in 0 … `num_classes` − 1.
    where: the file (and array) that they come from, for the error message.

  Raises:
    DataError: a label is out of range. The message gives the first such row.

  >>> check_labels(np.array([0, 2, 1]), num_classes=3, where='labels.idx')
  array([0, 2, 1], dtype=int32)
  >>> try:
  ...   check_labels(np.array([0, 3, 1]), num_classes=3, where='labels.idx')
  ... except DataError as error:
  ...   print(str(error)[:46])
  labels.idx: label 3 at row 1 is not in 0..2: t
  """
  bad = np.flatnonzero((labels < 0) | (labels >= num_classes))
  if bad.size:
    raise DataError(
      f'{where}: label {labels[bad[0]]} at row {bad[0]} is not in 0..{num_classes - 1}: the file is damaged or '
      'belongs to another data set; download it again'
    )
  return labels.astype(np.int32)
