"""The engine compared with PyTorch on the same machine: the same algorithms, models, batches and workers."""

import contextlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.measure import table
from benchmarks.setups import SETTINGS, Bench

PROCESSES = (8, 2, 1)
ALGORITHMS = ('vrl_sgd', 'local_sgd', 's_sgd')


def run(quick: bool) -> Iterator[str]:
  if importlib.util.find_spec('torch') is None:
    yield "skipped: PyTorch is not installed (pip install -e '.[bench]')"
    return
  titles = [f'PyTorch {count} process{"es" if count > 1 else ""} ex/s' for count in PROCESSES]
  heading = ['task', 'algorithm', 'engine ex/s', *titles, 'engine : best PyTorch']
  with contextlib.ExitStack() as stack:
    pytorch = {count: stack.enter_context(_PyTorch(count)) for count in PROCESSES}
    for name in SETTINGS:
      rows = [[name, a, *_compare(name, a, pytorch, repeats=1 if quick else 5)] for a in ALGORITHMS]
      yield table([heading, *rows])


def _compare(name, algorithm, pytorch, repeats):
  """Runs the engine and all PyTorch configurations, alternating; a repeat's ratio is to its fastest configuration."""
  bench = Bench(name, algorithm)
  rounds = {'lenet': 10, 'textcnn': 1, 'mlp': 3}[name]  # about a second each
  bench(rounds)
  ours, theirs = [], {count: [] for count in pytorch}
  for repeat in range(repeats):
    for count, processes in pytorch.items():
      theirs[count].append(processes.measure(name, algorithm, rounds, warmup=0 if repeat else 1))
    start = time.perf_counter()
    bench(rounds)
    ours.append(rounds * bench.examples_per_round / (time.perf_counter() - start))
  best = [max(rates) for rates in zip(*theirs.values())]
  rates = [statistics.median(rates) for rates in (ours, *theirs.values())]
  return [*(f'{rate:,.0f}' for rate in rates), f'{statistics.median(o / b for o, b in zip(ours, best)):.2f}']


class _PyTorch:
  """PyTorch in separate processes, which wait between two requests; a context manager."""

  def __init__(self, count):
    self._command = [sys.executable, '-m', 'benchmarks.pytorch.baseline', '--serve', '--processes', str(count)]

  def __enter__(self):
    self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return self

  def __exit__(self, *error):
    self._process.stdin.close()
    self._process.wait()
    self._process.stdout.close()

  def measure(self, task, algorithm, rounds, warmup):
    """Examples per second."""
    request = {'task': task, 'algorithm': algorithm, 'rounds': rounds, 'warmup': warmup}
    try:
      self._process.stdin.write(json.dumps(request) + '\n')
      self._process.stdin.flush()
      answer = self._process.stdout.readline()
    except BrokenPipeError:
      answer = ''
    if not answer:  # its error is in the terminal
      raise subprocess.CalledProcessError(self._process.wait(), self._command)
    return json.loads(answer)['examples_per_second']
