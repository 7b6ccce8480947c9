"""Predicts the cost of communication on a cluster for S-SGD, Local SGD and VRL-SGD with the periods of the theory.

    python -m vrl_jax.tools.cost
    python -m vrl_jax.tools.cost --workers 8 64 --parameters 1e8 --bandwidth 1e9 --latency 1e-4 --steps 1e7

It assumes one device per worker and the faster of a ring and a tree all-reduce (`vrl_jax.accounting.cost_model`). A step
of one worker takes 6·P·b/F seconds: six floating-point operations per parameter and example.
"""

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

from vrl_jax.accounting import theory
from vrl_jax.accounting.cost_model import (
  ALL_REDUCES,
  TCP_OVERHEAD,
  Network,
  fastest_all_reduce,
  period_for_share,
  ring_seconds,
  round_seconds,
)
from vrl_jax.accounting.traffic import Traffic
from vrl_jax.algorithms.core.quantisation import BITS, Quantiser
from vrl_jax.tools.arguments import (
  ArgumentParser,
  nonnegative_float,
  nonnegative_int,
  positive_float,
  positive_int,
  reports_errors,
)

WORKERS = (8, 16, 32, 64, 512, 4096)
PARAMETERS = (1e6, 1e8, 1e10)
_BYTES = 4  # per parameter
_SHARE = 0.1  # of the time in communication, for the column k for 10 %


class Setting(NamedTuple):
  """The parameters that all rows of the table share.

  Attributes:
    steps: T, the local steps of each worker.
    bandwidth: bits per second.
    latency: seconds per message.
    batch: b, examples (tokens, for a language model) per worker and step.
    flops: F, floating-point operations per second of one device.
    period: k in the last column.
    fragments: F in the last column.
    delay: τ in the last column.
    bits: per number that is sent, in the last column.

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
  fragments: int = 1
  delay: int = 0
  bits: int = 32


def table(setting: Setting, workers: Sequence[int] = WORKERS, parameters: Sequence[float] = PARAMETERS) -> str:
  """A table with a row for each number of workers and of parameters.

  >>> setting = Setting(steps=1_000_000, bandwidth=10e9, latency=50e-6, batch=4096, flops=1e14, period=20)
  >>> print(table(setting, workers=[8], parameters=[1e8]).splitlines()[2])
  8  100 M  0.0246    0.586 ring         215  24.85  k = 6: 4.98  k = 44: 1.54    2.19
  """
  head = (
    f'T = {setting.steps:,} steps, {setting.bandwidth / 1e9:g} Gbit/s, {setting.latency * 1e6:g} µs, '
    f'b = {setting.batch:,}, F = {setting.flops:.3g} flop/s, {_BYTES} bytes a parameter, one device per worker'
  )
  titles = ['N', 'P', 'step s', 'all-reduce s', 'k for 10 %', 'S-SGD', 'Local SGD', 'VRL-SGD', _last_title(setting)]
  rows = [titles, *(_row(setting, n, p) for n in workers for p in parameters)]
  widths = [max(map(len, column)) for column in zip(*rows)]
  lines = ['  '.join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
  foot = (
    'k for 10 %: the period at which communication takes 10 % of the time. Then, for each algorithm, the period of the\n'
    'theory (constant 1, non-identical data) and the time of a step relative to one without communication; the last\n'
    'column holds for any algorithm that sends the model once per round. '
    f'k > 1 needs N ≤ {_max_workers(setting.steps, 4 / 3):.0f} for Local SGD, '
    f'{_max_workers(setting.steps, 2 / 3):.0f} for VRL-SGD.'
  )
  return '\n'.join([head, *lines, foot])


def _last_title(setting):
  ways = ((setting.fragments > 1, f'F = {setting.fragments}'), (setting.delay, f'τ = {setting.delay}'))
  bits = (setting.bits < 32, f'{setting.bits} bits')
  return ', '.join([f'k = {setting.period}', *(text for shown, text in (*ways, bits) if shown)])


def _less_to_send(setting, payload, step, network, all_reduce):
  """The time of a round of the last column, relative to its steps."""
  if setting.bits < 32:  # an all-to-all and an all-gather have the messages of a ring
    scale = 0 if setting.bits == 16 else 32 / Quantiser(setting.bits).block
    payload, all_reduce = payload * (setting.bits + scale) / 32, ring_seconds
  ways = {'fragments': setting.fragments, 'delay': setting.delay, 'all_reduce': all_reduce}
  return round_seconds(Traffic(0, round(payload)), setting.period, step, network, **ways) / (setting.period * step)


def _max_workers(steps, exponent):
  """The largest N with a k of at least 2: T^⅓/2^⅔ from T^½/N^{3/2} ≥ 2 (VRL-SGD), T^⅓/2^{4/3} from T^¼/N^¾ ≥ 2."""
  return math.floor(steps ** (1 / 3) / 2**exponent + 1e-9)


def _row(setting, workers, parameters):
  network = Network(workers, workers, setting.bandwidth, setting.latency, TCP_OVERHEAD)
  payload = round(_BYTES * parameters)
  step = 6 * parameters * setting.batch / setting.flops
  name, seconds = fastest_all_reduce(payload, network)
  slower = lambda period: (
    round_seconds(Traffic(0, payload), period, step, network, all_reduce=ALL_REDUCES[name]) / (period * step)
  )

  def at_bound(algorithm):
    bound = theory.period_bound(algorithm, setting.steps, workers)
    assert bound is not None, algorithm  # the theory has one for the two algorithms of the table
    period = theory.floor_period(bound)
    return f'k = {period}: {_short(slower(period))}'

  enough = period_for_share(_SHARE, step, seconds)
  slow = [_short(slower(1)), at_bound('local_sgd'), at_bound('vrl_sgd')]
  slow.append(_short(_less_to_send(setting, payload, step, network, ALL_REDUCES[name])))
  return [f'{workers:,}', _size(parameters), f'{step:.3g}', f'{seconds:.3g} {name}', f'{enough:,}', *slow]


def _short(ratio):
  return f'{ratio:.2f}' if ratio < 100 else f'{ratio:,.0f}'


def _size(parameters):
  for unit, size in (('G', 1e9), ('M', 1e6), ('k', 1e3)):
    if parameters >= size:
      return f'{parameters / size:g} {unit}'
  return f'{parameters:g}'


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> main(['--workers', '8', '--parameters', '1e8'])  # doctest: +ELLIPSIS
  T = 1,000,000 steps, 10 Gbit/s, 50 µs, b = 4,096, F = 1e+14 flop/s, 4 bytes a parameter, one device per worker
  ...
  0
  """
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.cost',
    description='Predicts the cost of communication for S-SGD, Local SGD and VRL-SGD with the periods of the theory.',
  )
  parser.add_argument(
    '--workers', type=positive_int, nargs='+', default=WORKERS, metavar='N', help='numbers of workers'
  )
  parser.add_argument(
    '--parameters', type=positive_float, nargs='+', default=PARAMETERS, metavar='P', help='numbers of parameters'
  )
  parser.add_argument(
    '--steps', type=positive_int, default=10**6, metavar='T', help='local steps of each worker; default: %(default)s'
  )
  parser.add_argument(
    '--bandwidth', type=positive_float, default=10e9, metavar='B', help='bits per second; default: %(default)s'
  )
  parser.add_argument(
    '--latency', type=nonnegative_float, default=50e-6, metavar='S', help='seconds per message; default: %(default)s'
  )
  parser.add_argument(
    '--batch', type=positive_int, default=4096, metavar='b', help='examples per worker and step; default: %(default)s'
  )
  parser.add_argument(
    '--flops',
    type=positive_float,
    default=1e14,
    metavar='F',
    help='operations per second of one device; default: %(default)s',
  )
  parser.add_argument(
    '--period', type=positive_int, default=20, metavar='k', help='period in the last column; default: %(default)s'
  )
  parser.add_argument(
    '--fragments', type=positive_int, default=1, metavar='F', help='pieces of the model, in the last column'
  )
  parser.add_argument(
    '--delay', type=nonnegative_int, default=0, metavar='τ', help='steps that a transfer may take, in the last column'
  )
  parser.add_argument('--bits', type=int, choices=(*BITS, 32), default=32, help='per number sent, in the last column')
  args = parser.parse_args(argv)
  setting = Setting(*(getattr(args, name) for name in Setting._fields))
  print(table(setting, args.workers, args.parameters))
  return 0


if __name__ == '__main__':
  sys.exit(main())
