"""The engine against PyTorch on the same machine: the same algorithms, models, batches and workers."""

import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time

from benchmarks.measure import table
from benchmarks.setups import SETTINGS, Bench

BASELINE = pathlib.Path(__file__).with_name('pytorch_baseline.py')
ARRANGEMENTS = {
  '8 processes': ['--arrangement', 'processes'],
  '2 processes': ['--arrangement', 'processes', '--processes', '2'],
  '1 process': ['--arrangement', 'loop'],
}


def run(quick: bool) -> str:
  if importlib.util.find_spec('torch') is None:
    return "skipped: PyTorch is not installed (pip install -e '.[bench]')"
  repeats = 1 if quick else 3
  rows = [['task', 'algorithm', 'engine ex/s', *(f'PyTorch {a} ex/s' for a in ARRANGEMENTS), 'engine : best PyTorch']]
  for name in SETTINGS:
    for algorithm in ('vrl_sgd', 'local_sgd', 's_sgd'):
      bench = Bench(name, algorithm)
      count = {'lenet': 8, 'textcnn': 1, 'mlp': 3}[name]
      bench(count)
      ours, theirs = [], {a: [] for a in ARRANGEMENTS}
      for _ in range(repeats):
        for arrangement, flags in ARRANGEMENTS.items():
          theirs[arrangement].append(_pytorch(name, algorithm, flags, count))
        start = time.perf_counter()
        bench(count)
        ours.append(count * bench.examples_per_round / (time.perf_counter() - start))
      ratios = [o / max(theirs[a][i] for a in ARRANGEMENTS) for i, o in enumerate(ours)]
      rates = [statistics.median(theirs[a]) for a in ARRANGEMENTS]
      rows.append(
        [
          name,
          algorithm,
          f'{statistics.median(ours):,.0f}',
          *(f'{rate:,.0f}' for rate in rates),
          f'{statistics.median(ratios):.2f}',
        ]
      )
  return table(rows)


def _pytorch(task, algorithm, flags, count):
  command = [sys.executable, str(BASELINE), '--task', task, '--algorithm', algorithm, *flags]
  command += ['--rounds', str(count), '--warmup', '1']
  output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
  return json.loads(output.strip().splitlines()[-1])['examples_per_second']
