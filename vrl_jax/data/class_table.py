"""The table of the examples per worker and class, which shows how unlike the shards of a partition are."""

from collections.abc import Sequence

import numpy as np

from vrl_jax.data.partition import Partition


def class_table(partition: Partition, labels: np.ndarray, num_classes: int) -> np.ndarray:
  """Counts the examples per worker and class: int64 [workers, classes]; with `identical` every worker has all of them.

  >>> from vrl_jax.data.partition import by_class
  >>> labels = np.array([0, 0, 1, 1, 1, 2])
  >>> class_table(by_class(labels, workers=2), labels, num_classes=3)
  array([[2, 1, 0],
         [0, 2, 1]])
  """
  labels = np.asarray(labels)
  if partition.shards is None:
    return np.tile(np.bincount(labels, minlength=num_classes), (partition.workers, 1))
  return np.stack([np.bincount(labels[shard], minlength=num_classes) for shard in partition.shards])


def format_class_table(table: np.ndarray, class_names: Sequence[str] | None = None) -> str:
  """Formats a `class_table` for the terminal: equal rows share a line, and more than 16 classes are summarised.

  >>> print(format_class_table(np.array([[5, 0], [1, 4], [1, 4]]), ['cat', 'dog']))
  worker  all  cat  dog
  0         5    5    .
  1-2       5    1    4
  """
  names = [str(name) for name in (range(table.shape[1]) if class_names is None else class_names)]
  few = table.shape[1] <= 16
  lines = [['worker', 'all', *([name[:9] for name in names] if few else ['classes', 'largest', 'which'])]]
  starts = [i for i in range(len(table)) if i == 0 or (table[i] != table[i - 1]).any()]
  for first, end in zip(starts, [*starts[1:], len(table)]):
    row, total = table[first], table[first].sum()
    cells = [str(count or '.') for count in row]
    if not few:
      largest = f'{names[row.argmax()]} {100 * row.max() / max(total, 1):.0f} %'
      cells = [str(np.count_nonzero(row)), largest, _ranges(np.flatnonzero(row))]
    lines.append([f'{first}-{end - 1}' if end - first > 1 else str(first), str(total), *cells])
  widths = [max(map(len, column)) for column in zip(*lines)]
  rows = [zip(line, widths, ('<' if few else '<>>><').ljust(len(line), '>')) for line in lines]
  return '\n'.join('  '.join(f'{cell:{align}{width}}' for cell, width, align in row).rstrip() for row in rows)


def _ranges(numbers: np.ndarray, limit: int = 6) -> str:
  runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1) if len(numbers) else []
  texts = [f'{run[0]}-{run[-1]}' if len(run) > 1 else str(run[0]) for run in runs]
  return ', '.join(texts[:limit]) + (f', ... ({len(texts) - limit} more)' if len(texts) > limit else '')
