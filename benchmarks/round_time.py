"""The engine's rounds against the bare gradient, and the algorithms against each other."""

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
  """VRL-SGD's step reads and writes x, and reads g and Δ: four passes over the parameters at the measured bandwidth."""
  size = sum(x.nbytes for x in jax.tree.leaves(bench.params)) * bench.arrangement.workers
  bandwidth = _bandwidth(len(bench.arrangement.devices))
  traffic = 4 * size * bench.period * count / bandwidth
  limit = statistics.median(seconds['bare']) + traffic
  engine = statistics.median(seconds['vrl_sgd'])
  return (
    f'mlp: roofline (bare gradient + x read and written, g and Δ read, at {bandwidth / 1e9:.1f} GB/s) : engine = '
    f'{limit / engine:.2f}'
  )


def _bandwidth(devices):
  """Bytes a second of a large read-modify-write on all devices at once."""
  from vrl_jax.arrangement import arrange

  arrangement = arrange(devices, devices)
  x = arrangement.split(np.ones((devices, 16 << 20), np.float32))
  double = arrangement.pmap(lambda x: x * 1.0001, donate_argnums=0)
  x = double(x)
  best = 0.0
  for _ in range(7):
    jax.block_until_ready(x)
    start = time.perf_counter()
    x = jax.block_until_ready(double(x))
    best = max(best, 2 * x.nbytes / (time.perf_counter() - start))
  return best
