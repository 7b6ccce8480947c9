"""Cost as a function of the number of workers and of the period; memory; time to the first round."""

import statistics
import tempfile
import time
from collections.abc import Iterator

import jax

from benchmarks import fresh_process
from benchmarks.measure import interleaved, table
from benchmarks.setups import BareGradient, Bench

WORKERS = (1, 2, 4, 8, 16, 32, 64)
PERIODS = (1, 2, 5, 10, 20, 50, 100)


def run(quick: bool) -> Iterator[str]:
  yield _workers(quick)
  yield _periods(quick)
  yield _memory()
  yield _resident()
  yield _first_round()


def _workers(quick):
  """LeNet, VRL-SGD: wall-clock time per step of a worker."""
  rounds = {
    n: max(1, 64 // n) for n in (WORKERS[3:] if quick else WORKERS)
  }  # the same number of steps, summed over the workers
  benches = {n: Bench('lenet', 'vrl_sgd', workers=n, shard=128) for n in rounds}
  candidates = {n: lambda _, n=n: benches[n](rounds[n]) for n in rounds}
  seconds = interleaved(candidates, 1, 3 if quick else 7)
  cost = {n: statistics.median(seconds[n]) / (rounds[n] * 20 * n) * 1e6 for n in rounds}
  growth = {
    n: statistics.median(a / rounds[n] / n / (b / rounds[8] / 8) for a, b in zip(seconds[n], seconds[8]))
    for n in rounds
  }
  rows = [['LeNet, VRL-SGD, k = 20, workers', *map(str, rounds)]]
  rows.append(['µs per worker and step', *(f'{value:.0f}' for value in cost.values())])
  rows.append(['relative to 8 workers', *(f'{value:.2f}' for value in growth.values())])
  return table(rows)


def _periods(quick):
  benches = {k: Bench('lenet', 'vrl_sgd', period=k) for k in PERIODS}
  candidates = {k: lambda _, k=k: benches[k](200 // k) for k in PERIODS}  # the same number of steps
  seconds = interleaved(candidates, 1, 3 if quick else 5)
  rows = [['LeNet, VRL-SGD, 8 workers, k', *map(str, PERIODS)]]
  rows.append(['µs per step of all workers', *(f'{statistics.median(seconds[k]) / 200 * 1e6:.0f}' for k in PERIODS)])
  return table(rows)


def _memory():
  """The memory of the compiled round on one device, compared with a bound."""
  rows = [
    [
      'task, algorithm, one device of 2',
      'data MB',
      'bare temporaries MB',
      'round: arguments + temporaries MB',
      'bound MB',
      'round : bound',
    ]
  ]
  for name in ('lenet', 'textcnn', 'mlp'):
    bare = None  # the same for all algorithms
    for algorithm in ('s_sgd', 'local_sgd', 'easgd', 'vrl_sgd'):
      bench = Bench(name, algorithm)
      items = bench.feed.items(0, bench.period, 1)
      limit = bench.placement.replicate(jax.numpy.int32(1))
      analysis = bench.engine.compile('run', bench.state, items, limit).memory_analysis()
      used = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes
      bare = bare or BareGradient(bench).compiled().memory_analysis().temp_size_in_bytes
      supply = bench.feed.supply
      data = sum(x.nbytes for x in jax.tree.leaves((supply.data, supply.frozen))) / len(bench.placement.devices)
      params = sum(x.nbytes for x in jax.tree.leaves(bench.params)) * bench.placement.workers_per_device
      bound = data + bare + 1.3 * 3 * params
      mega = [f'{value / 1e6:.1f}' for value in (data, bare, used, bound)]
      rows.append([f'{name}, {algorithm}', *mega, f'{used / bound:.2f}'])
  return table(rows)


def _resident():
  """The peak resident memory of a new process, and how much of it JAX uses before the first array."""
  rows = [['VRL-SGD, 64 examples per worker', 'workers', 'state MB', 'peak RSS MB', 'before the first array MB']]
  for name, workers in (('lenet', 1), ('lenet', 8), ('lenet', 64), ('mlp', 1), ('mlp', 8), ('mlp', 32)):
    found = fresh_process.measure(name, workers=workers, shard=64)
    sizes = [f'{found[key]:.0f}' for key in ('state', 'rss_peak', 'rss_before')]
    rows.append([name, str(workers), *sizes])
  return table(rows)


def _first_round():
  """A new process from import to the end of its second round, with an empty and with a full compilation cache."""
  rows = [['seconds to the first rounds (import, data, compile, run)', 'empty compilation cache', 'full']]
  for name in ('lenet', 'textcnn', 'mlp'):
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
      for _ in range(3):
        start = time.perf_counter()
        fresh_process.measure(name, cache=cache)
        seconds.append(time.perf_counter() - start)
    rows.append([name, f'{seconds[0]:.1f}', f'{min(seconds[1:]):.1f}'])
  return table(rows)
