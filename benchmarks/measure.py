"""Fair timing on a noisy machine: interleaved candidates in one process, and the median of the ratios."""

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable


def interleaved(candidates: dict[str, Callable[[int], None]], count: int, repeats: int) -> dict[str, list[float]]:
  """Times `candidate(count)` of all candidates alternately, `repeats` times after a warm-up.

  Returns:
    For each candidate the seconds of each repeat.
  """
  for candidate in candidates.values():
    candidate(count)
  seconds = {name: [] for name in candidates}
  names = list(candidates)
  for repeat in range(repeats):
    for name in names if repeat % 2 == 0 else reversed(names):
      start = time.perf_counter()
      candidates[name](count)
      seconds[name].append(time.perf_counter() - start)
  return seconds


def ratio(seconds: dict[str, list[float]], numerator: str, denominator: str) -> float:
  """The median over the repeats of the ratio of two candidates' times."""
  return statistics.median(n / d for n, d in zip(seconds[numerator], seconds[denominator]))


def table(rows: list[list[str]]) -> str:
  """Rows as a Markdown table; the first is the header."""
  widths = [max(len(cell) for cell in column) for column in zip(*rows)]
  lines = ['| ' + ' | '.join(cell.ljust(width) for cell, width in zip(row, widths)) + ' |' for row in rows]
  lines.insert(1, '|' + '|'.join('-' * (width + 2) for width in widths) + '|')
  return '\n'.join(lines)


def machine() -> str:
  """The machine and the versions of the packages."""
  model = platform.processor() or platform.machine()
  try:
    with open('/proc/cpuinfo') as file:
      model = next(line.split(':')[1].strip() for line in file if line.startswith('model name'))
  except (OSError, StopIteration):
    pass
  versions = []
  for package in ('jax', 'jaxlib', 'flax', 'optax', 'torch'):
    try:
      versions.append(f'{package} {importlib.metadata.version(package)}')
    except importlib.metadata.PackageNotFoundError:
      continue
  return f'{os.cpu_count()} cores, {model}; Python {platform.python_version()}, {", ".join(versions)}'
