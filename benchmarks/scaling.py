"""Cost against the number of workers and the period; memory; time to the first round."""

import statistics
import subprocess
import sys
import tempfile
import time

import jax

from benchmarks.measure import interleaved, table
from benchmarks.setups import BareGradient, Bench

WORKERS = (1, 2, 4, 8, 16, 32, 64)
PERIODS = (1, 2, 5, 10, 20, 50, 100)


def run(quick: bool) -> str:
  parts = [_workers(quick), _periods(quick), _memory(), _first_round()]
  return '\n\n'.join(parts)


def _workers(quick):
  """LeNet, VRL-SGD: microseconds of wall-clock for each worker's step."""
  benches = {n: Bench('lenet', 'vrl_sgd', workers=n, shard=128) for n in (WORKERS[3:] if quick else WORKERS)}
  seconds = interleaved(benches, 2, 3 if quick else 9)
  cost = {n: statistics.median(seconds[n]) / (2 * 20 * n) * 1e6 for n in benches}
  rows = [['LeNet, VRL-SGD, k = 20, workers', *map(str, cost)]]
  rows.append(['µs per worker and step', *(f'{value:.0f}' for value in cost.values())])
  rows.append(['relative to 8 workers', *(f'{value / cost[8]:.2f}' for value in cost.values())])
  return table(rows)


def _periods(quick):
  benches = {k: Bench('lenet', 'vrl_sgd', period=k) for k in PERIODS}
  seconds = {}
  for k, bench in benches.items():  # as many steps for each
    seconds |= interleaved({k: bench}, 200 // k, 3 if quick else 5)
  rows = [['LeNet, VRL-SGD, 8 workers, k', *map(str, PERIODS)]]
  rows.append(['µs per step of all workers', *(f'{statistics.median(seconds[k]) / 200 * 1e6:.0f}' for k in PERIODS)])
  return table(rows)


def _memory():
  """The compiled round's memory against the issue's bound, one device."""
  rows = [['task, algorithm', 'data MB', 'round: arguments + temporaries MB', 'bound MB', 'round : bound']]
  for name in ('lenet', 'textcnn', 'mlp'):
    for algorithm in ('s_sgd', 'local_sgd', 'easgd', 'vrl_sgd'):
      bench = Bench(name, algorithm)
      items = bench.feed.items(0, bench.period, 1)
      limit = bench.arrangement.replicate(jax.numpy.int32(1))
      analysis = bench.engine.compile('run', bench.state, items, limit).memory_analysis()
      used = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes
      bare = BareGradient(bench).compiled().memory_analysis().temp_size_in_bytes
      supply = bench.feed.supply
      data = sum(x.nbytes for x in jax.tree.leaves((supply.data, supply.frozen))) / len(bench.arrangement.devices)
      params = sum(x.nbytes for x in jax.tree.leaves(bench.params)) * bench.arrangement.workers_per_device
      bound = data + bare + 1.3 * 3 * params
      mega = [f'{value / 1e6:.1f}' for value in (data, used, bound)]
      rows.append([f'{name}, {algorithm}', *mega, f'{used / bound:.2f}'])
  return table(rows)


def _first_round():
  """A fresh process from import to the end of its first run, with an empty and with a full compilation cache."""
  code = (
    'import sys, jax; jax.config.update("jax_compilation_cache_dir", sys.argv[1]); '
    'jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1); '
    'from vrl_jax import devices; devices.prepare(workers=8); '
    'from benchmarks.setups import Bench; Bench("lenet", "vrl_sgd")(1)'
  )
  with tempfile.TemporaryDirectory() as cache:
    seconds = []
    for _ in range(3):
      start = time.perf_counter()
      subprocess.run([sys.executable, '-c', code, cache], check=True)
      seconds.append(time.perf_counter() - start)
  rows = [['time to the first round (import, data, compile, run)', 's']]
  rows += [['empty compilation cache', f'{seconds[0]:.1f}'], ['full compilation cache', f'{min(seconds[1:]):.1f}']]
  return table(rows)
