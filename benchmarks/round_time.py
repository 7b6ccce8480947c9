"""The engine's rounds compared with the bare gradient, and the algorithms with each other."""

import statistics
import time

import jax
import numpy as np

from benchmarks.measure import interleaved, ratio, table
from benchmarks.setups import SETTINGS, BareGradient, Bench

ALGORITHMS = ('s_sgd', 'local_sgd', 'easgd', 'vrl_sgd')


def run(quick: bool) -> str:
  repeats = 3 if quick else 11
  rows = [['task', *(f'{a} ex/s' for a in ALGORITHMS), 'engine : bare', 'VRL : Local time', 'S-SGD : VRL time']]
  notes = []
  for name in SETTINGS:
    benches = {a: Bench(name, a) for a in ALGORITHMS}
    count = {'lenet': 8, 'textcnn': 1, 'mlp': 2}[name]
    bare = BareGradient(benches['vrl_sgd'])
    seconds = interleaved({**benches, 'bare': bare}, count, repeats)
    examples = count * benches['vrl_sgd'].examples_per_round
    rows.append(
      [
        name,
        *(f'{examples / statistics.median(seconds[a]):,.0f}' for a in ALGORITHMS),
        f'{ratio(seconds, "bare", "vrl_sgd"):.2f}',
        f'{ratio(seconds, "vrl_sgd", "local_sgd"):.3f}',
        f'{ratio(seconds, "s_sgd", "vrl_sgd"):.2f}',
      ]
    )
    if name == 'mlp':
      notes.append(_roofline(benches['vrl_sgd'], seconds, count))
  return '\n'.join([table(rows), *notes])


def _roofline(bench, seconds, count):
  """The time of the bare gradient and of one pass over x (read and written), g and Δ, compared with the engine."""
  size = sum(x.nbytes for x in jax.tree.leaves(bench.params)) * bench.placement.workers
  rates = {name: _bandwidth(bench.placement, size, name) for name in ('update', 'scale')}
  engine = statistics.median(seconds['vrl_sgd'])
  limit = {
    name: statistics.median(seconds['bare']) + 4 * size * bench.period * count / rate for name, rate in rates.items()
  }
  return (
    f'mlp: roofline (bare gradient + x read and written, g and Δ read, at {rates["update"] / 1e9:.0f} GB/s, the '
    f'bandwidth of such a pass alone) : engine = {limit["update"] / engine:.2f}\n'
    f'mlp: the same at {rates["scale"] / 1e9:.0f} GB/s, the bandwidth of x *= a, which writes as much as it '
    f'reads = {limit["scale"] / engine:.2f}'
  )


def _bandwidth(placement, size, name):
  """The median bandwidth, in bytes per second, of an in-place pass over arrays of `size` bytes on all devices."""
  passes = {'update': (4, lambda x, g, delta: x - 0.025 * (g - delta)), 'scale': (2, lambda x, g, delta: x * 0.999)}
  moved, fun = passes[name]
  program = placement.pmap(fun, donate_argnums=0)
  x, g, delta = (
    placement.split(np.ones((placement.workers, size // placement.workers // 4), np.float32)) for _ in range(3)
  )
  seconds = []
  for _ in range(11):
    jax.block_until_ready((x, g, delta))
    start = time.perf_counter()
    x = jax.block_until_ready(program(x, g, delta))
    seconds.append(time.perf_counter() - start)
  return moved * size / statistics.median(seconds[1:])
