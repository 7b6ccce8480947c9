"""What communication costs on clusters that are not at hand: S-SGD, Local SGD and VRL-SGD at the period of the theory.

    python -m vrl_jax.tools.cost
    python -m vrl_jax.tools.cost --workers 8 64 --parameters 1e8 --bandwidth 1e9 --latency 1e-4 --steps 1e7

One device per worker, and the faster of the ring and the tree (`vrl_jax.cost`). A step of one worker takes 6·P·b/F
seconds: six floating-point operations for each parameter and example.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

from vrl_jax import theory
from vrl_jax.communication import Traffic
from vrl_jax.cost import ALL_REDUCES, TCP_OVERHEAD, Cluster, fastest_all_reduce, period_for_share, round_seconds
from vrl_jax.tools.arguments import not_negative, positive, whole

WORKERS = (8, 16, 32, 64, 512, 4096)
PARAMETERS = (1e6, 1e8, 1e10)
_BYTES = 4  # of a parameter
_SHARE = 0.1


class Setting(NamedTuple):
  """What the rows of the table have in common.

  Attributes:
    steps: T, of each worker.
    bandwidth: bits a second.
    latency: seconds for each message.
    batch: b, examples (tokens, for a language model) that a worker sees in a step.
    flops: F, floating-point operations a second of one device.
    period: the k of the last column, whatever theory says.

  >>> slow = Setting(steps=1_000_000, bandwidth=1e9, latency=1e-4, batch=32, flops=1e12, period=20)
  >>> slow._replace(bandwidth=10e9).bandwidth / slow.bandwidth
  10.0
  """

  steps: int
  bandwidth: float
  latency: float
  batch: int
  flops: float
  period: int


def table(setting: Setting, workers: Sequence[int] = WORKERS, parameters: Sequence[float] = PARAMETERS) -> str:
  """A row for each number of workers and of parameters.

  >>> setting = Setting(steps=1_000_000, bandwidth=10e9, latency=50e-6, batch=4096, flops=1e14, period=20)
  >>> print(table(setting, workers=[8], parameters=[1e8]).splitlines()[2])
  8  100 M  0.0246    0.586 ring         215  24.85  k = 6: 4.98  k = 44: 1.54    2.19
  """
  head = (
    f'T = {setting.steps:,} steps, {setting.bandwidth / 1e9:g} Gbit/s, {setting.latency * 1e6:g} µs, '
    f'b = {setting.batch:,}, F = {setting.flops:.3g} flop/s, {_BYTES} bytes a parameter, one device per worker'
  )
  titles = ['N', 'P', 'step s', 'all-reduce s', 'k for 10 %', 'S-SGD', 'Local SGD', 'VRL-SGD', f'k = {setting.period}']
  rows = [titles, *(_row(setting, n, p) for n in workers for p in parameters)]
  widths = [max(map(len, column)) for column in zip(*rows)]
  lines = ['  '.join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
  foot = (
    'k for 10 %: the period with which a tenth of the time is communication. Then, for each algorithm, the k of the\n'
    'theory (constant 1, data that differ) and the time of a step by its time without communication; in the last\n'
    f'column that of any algorithm that sends the model once in a round. k > 1 needs N ≤ {_most(setting.steps, 4 / 3):.0f} '
    f'for Local SGD, {_most(setting.steps, 2 / 3):.0f} for VRL-SGD.'
  )
  return '\n'.join([head, *lines, foot])


def _most(steps, exponent):
  """The N up to which the theory's k is at least 2: T^⅓/2^⅔ from T^½/N^{3/2} ≥ 2, T^⅓/2^{4/3} from T^¼/N^¾ ≥ 2."""
  return math.floor(steps ** (1 / 3) / 2**exponent + 1e-9)


def _row(setting, workers, parameters):
  cluster = Cluster(workers, workers, setting.bandwidth, setting.latency, TCP_OVERHEAD)
  payload = round(_BYTES * parameters)
  step = 6 * parameters * setting.batch / setting.flops
  name, seconds = fastest_all_reduce(payload, cluster)
  slower = lambda period: (
    round_seconds(Traffic(0, payload), period, step, cluster, all_reduce=ALL_REDUCES[name]) / (period * step)
  )

  def at_bound(algorithm):
    period = theory.whole_period(theory.period_bound(algorithm, setting.steps, workers))
    return f'k = {period}: {_short(slower(period))}'

  enough = period_for_share(_SHARE, step, seconds)
  slow = [_short(slower(1)), at_bound('local_sgd'), at_bound('vrl_sgd'), _short(slower(setting.period))]
  return [f'{workers:,}', _size(parameters), f'{step:.3g}', f'{seconds:.3g} {name}', f'{enough:,}', *slow]


def _short(ratio):
  return f'{ratio:.2f}' if ratio < 100 else f'{ratio:,.0f}'


def _size(parameters):
  for unit, size in (('G', 1e9), ('M', 1e6), ('k', 1e3)):
    if parameters >= size:
      return f'{parameters / size:g} {unit}'
  return f'{parameters:g}'


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> main(['--workers', '8', '--parameters', '1e8'])  # doctest: +ELLIPSIS
  T = 1,000,000 steps, 10 Gbit/s, 50 µs, b = 4,096, F = 1e+14 flop/s, 4 bytes a parameter, one device per worker
  ...
  0
  """
  parser = argparse.ArgumentParser(prog='python -m vrl_jax.tools.cost', description=__doc__.split('\n')[0])
  parser.add_argument('--workers', type=whole, nargs='+', default=WORKERS, metavar='N')
  parser.add_argument('--parameters', type=positive, nargs='+', default=PARAMETERS, metavar='P')
  parser.add_argument('--steps', type=whole, default=10**6, metavar='T', help='of each worker; %(default)s')
  parser.add_argument('--bandwidth', type=positive, default=10e9, metavar='B', help='bits a second; %(default)s')
  parser.add_argument('--latency', type=not_negative, default=50e-6, metavar='S', help='seconds; %(default)s')
  parser.add_argument('--batch', type=whole, default=4096, metavar='b', help='examples of a step; %(default)s')
  parser.add_argument('--flops', type=positive, default=1e14, metavar='F', help='of one device; %(default)s')
  parser.add_argument('--period', type=whole, default=20, metavar='k', help='of the last column; %(default)s')
  args = parser.parse_args(argv)
  setting = Setting(*(getattr(args, name) for name in Setting._fields))
  print(table(setting, args.workers, args.parameters))
  return 0


if __name__ == '__main__':
  sys.exit(main())
