"""Examples on the devices compared with examples gathered on the host, with and without overlap."""

import statistics

import jax

from benchmarks.measure import interleaved, ratio, table
from benchmarks.setups import Bench


class _WithoutOverlap(Bench):
  def __call__(self, count):
    for r in range(count):
      items = jax.block_until_ready(self.feed.items(r * self.period, self.period, 1))
      self.state, token = self.engine.run(self.state, items, 1)
      token.block_until_ready()


def run(quick: bool) -> str:
  rows = [['task', 'on the devices ex/s', 'host-fed ex/s', 'host-fed : device', 'host-fed, no overlap : device']]
  for name, count in (('lenet', 8), ('mlp', 3)):
    benches = {
      'device': Bench(name, 'vrl_sgd'),
      'host': Bench(name, 'vrl_sgd', where='host'),
      'waiting': _WithoutOverlap(name, 'vrl_sgd', where='host'),
    }
    seconds = interleaved(benches, count, 3 if quick else 9)
    examples = count * benches['device'].examples_per_round
    rows.append(
      [
        name,
        *(f'{examples / statistics.median(seconds[kind]):,.0f}' for kind in ('device', 'host')),
        *(f'{ratio(seconds, "device", kind):.2f}' for kind in ('host', 'waiting')),
      ]
    )
  return table(rows)
