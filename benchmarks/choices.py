"""The engine's automatic choices, each compared with its alternatives."""

import statistics
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import fresh_process
from benchmarks.measure import interleaved, ratio, table
from benchmarks.setups import Bench
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AXES, AXIS, DEVICE_AXIS

_COUNT = {'lenet': 2, 'textcnn': 1, 'mlp': 1}


def run(quick: bool) -> Iterator[str]:
  repeats = 3 if quick else 7
  yield from _convolution()
  yield from _at_once(repeats)
  yield from _tiles(repeats)
  yield _dispatch(repeats)
  yield _mean(repeats)
  yield _devices(1 if quick else 2)
  yield _threads(1 if quick else 2)


def _compared(title, name, benches, repeats, count=None):
  """A table of the candidates' rates; the first is the engine's choice."""
  count = count or _COUNT[name]
  seconds = interleaved(benches, count, repeats)
  first = next(iter(benches))
  rows = [[title, 'ex/s', 'time : chosen']]
  for key, bench in benches.items():
    rate = count * bench.examples_per_round / statistics.median(seconds[key])
    rows.append([key, f'{rate:,.0f}', f'{ratio(seconds, key, first):.2f}'])
  return table(rows)


def _convolution():
  for name, period in (
    ('lenet', 20),
    ('textcnn', 4),
  ):  # a round of 50 steps of TextCNN with XLA's convolution takes most of a minute
    benches = {form: Bench(name, 'local_sgd', period=period, conv_form=form) for form in ('patches', 'xla')}
    yield _compared(f'{name}, k = {period}, convolution', name, benches, 3, count=1)


def _at_once(repeats):
  for name, workers, sizes in (
    ('lenet', 8, (4, 2, 1)),
    ('lenet', 64, (4, 2, 8, 32)),
    ('textcnn', 8, (1, 2, 4)),
  ):
    benches = {str(n): Bench(name, 'vrl_sgd', workers=workers, period=5, shard=64, workers_at_once=n) for n in sizes}
    title = f'{name}, {workers} workers on 2 devices, k = 5, workers at once per device'
    yield _compared(title, name, benches, min(repeats, 5))
  orders = {'serially': None, '4 at once': 4, '2 at once': 2, '1 at once': 1}
  benches = {title: Bench('mlp', 'vrl_sgd', workers_at_once=n) for title, n in orders.items()}
  yield _compared('mlp, 8 workers on 2 devices, k = 20, workers', 'mlp', benches, repeats)


def _tiles(repeats):
  sizes = {'1 MB': None, '512 kB': 1 << 19, '2 MB': 1 << 21, 'no tiles': 0}
  for hidden, count in ((512, 2), (1024, 1), (2048, 1)):
    benches = {key: Bench('mlp', 'vrl_sgd', hidden=(hidden,), tile_bytes=size) for key, size in sizes.items()}
    yield _compared(f'2048-{hidden}-200, size of tiles', 'mlp', benches, repeats, count=count)


class _InDispatches(Bench):
  """Dispatches of several short rounds; each is dispatched before the last one is done."""

  def __init__(self, steps, **options):
    super().__init__('mlp', 'vrl_sgd', **options)
    self._rounds = max(1, steps // self.period)

  def __call__(self, count):
    token = None
    for start in range(0, count, self._rounds):
      items = self.feed.items(start * self.period, self.period, self._rounds)
      self.state, last = self.engine.run(self.state, items, self._rounds)
      if token is not None:
        token.block_until_ready()
      token = last
    token.block_until_ready()


def _dispatch(repeats):
  benches = {f'{steps:,}': _InDispatches(steps, period=5, hidden=(16,), shard=128) for steps in (2000, 200, 20, 5)}
  return _compared('2048-16-200, k = 5, steps per dispatch', 'mlp', benches, repeats, count=400)


def _mean(repeats):
  """The mean of the MLP over 8 workers on their devices."""
  bench = Bench('mlp', 'local_sgd')
  means = {
    'sum of slices, one all-reduce of a tree': lambda tree: mean_over_workers(tree, AXES),
    'lax.pmean': lambda tree: lax.pmean(tree, (DEVICE_AXIS, AXIS)),
    'sum of slices of one flat vector': _mean_of_flat,
  }

  def timed(mean):
    def worker(params, count):
      return lax.fori_loop(0, count, lambda _, x: jax.tree.map(lambda x: 0.999 * x, mean(x)), params)

    program = bench.placement.pmap(jax.vmap(worker, (0, None), axis_name=AXIS))
    counts = bench.placement.replicate
    return lambda count: jax.block_until_ready(program(bench.state.params, counts(np.int32(count))))

  seconds = interleaved({key: timed(mean) for key, mean in means.items()}, 4, repeats)
  rows = [['mlp, mean over the workers', 'ms']]
  return table(rows + [[key, f'{statistics.median(seconds[key]) / 4 * 1e3:.1f}'] for key in means])


def _mean_of_flat(tree):
  leaves, structure = jax.tree.flatten(tree)
  flat = mean_over_workers(jnp.concatenate([x.ravel() for x in leaves]), AXES)
  out, start = [], 0
  for x in leaves:
    out.append(flat[start : start + x.size].reshape(x.shape))
    start += x.size
  return structure.unflatten(out)


def _devices(repeats):
  options = {f'{count} device{"s" * (count > 1)} x {8 // count}': {'devices': count} for count in (2, 8, 1)}
  return _in_processes('ex/s of 8 workers on', options, repeats)


def _threads(repeats):
  options = {f'{threads} threads': {'devices': 2, 'threads': threads} for threads in (2, 3, 4, 16)}
  return _in_processes('ex/s on 2 devices, 2 cores, with', options, repeats)


def _in_processes(title, options, repeats):
  """Every option in new processes, because it is fixed when JAX starts."""
  rows = [[title, *options]]
  for name, count in _COUNT.items():
    rates = {option: [] for option in options}
    for _ in range(repeats):
      for option, found in rates.items():
        found.append(fresh_process.measure(name, rounds=count, repeats=5, **options[option])['examples_per_second'])
    rows.append([name, *(f'{statistics.median(found):,.0f}' for found in rates.values())])
  return table(rows)
