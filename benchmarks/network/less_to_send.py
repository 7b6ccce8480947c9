"""Fragments, delays and few bits over slow links: python -m benchmarks.network.less_to_send.

Plain VRL-SGD and VRL-SGD with less to send, one after the other, on two and four hosts of one device each (`points`). The
points are stored in results/data/network_less_to_send.json; `--report` only prints their table.

A point also has the share of the machine's cores that other programs took while it was measured.
"""

import argparse
import itertools
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import measure
from benchmarks.network import RESULTS, namespaces, points, report
from vrl_jax.accounting import cost_model
from vrl_jax.algorithms.core.quantisation import Quantiser

STORED = RESULTS.with_name('network_less_to_send.json')
BANDWIDTHS = (1e8, 1e9, None)
_EPOCHS = {'lenet': 30.0, 'mlp': 10.0}  # enough for VRL-SGD to reach the loss
QUIET = 0.1  # the largest share of the cores that others may take


class Way(NamedTuple):
  """A way to send models.

  >>> Way(fragments=4, bits=4).flags('vrl_sgd')
  'vrl_sgd fragments=4 bits=4'
  """

  fragments: int = 1
  delay: int = 0
  bits: int = 32

  def flags(self, algorithm: str) -> str:
    """The algorithm of a point, with the fields that are not off."""
    off = Way()._asdict()
    return ' '.join([algorithm, *(f'{name}={value}' for name, value in self._asdict().items() if value != off[name])])


WAYS = {
  '': Way(),
  '4 fragments': Way(fragments=4),
  '4 fragments, 5 steps of delay': Way(fragments=4, delay=5),
  '8 bits': Way(bits=8),
  '4 bits': Way(bits=4),
  'all, 4 bits': Way(fragments=4, delay=5, bits=4),
}


def measure_all(
  tasks: Sequence[str], hosts: Sequence[int], bandwidths: Sequence[float | None], ways: Sequence[str]
) -> None:
  """Measures and stores the points."""
  available = {name: task._replace(epochs=_EPOCHS[name]) for name, task in points.tasks().items()}
  for count, name, bandwidth, way in itertools.product(hosts, tasks, bandwidths, ways):
    setting = WAYS[way].flags('vrl_sgd')
    reached = points.trajectory(name, available[name], setting)
    before = _cpu_seconds()
    point = points.measure(name, available[name], setting, bandwidth, reached, hosts=count)
    point |= {'others': round(_share_of_others(before), 3)}
    points.store(point, STORED)
    print(f'{count} hosts, {report.line(point)}; others took {point["others"]:.0%} of the cores', flush=True)


def _cpu_seconds():
  """Now, and the CPU time of everything on this machine and of the finished children of this process."""
  user, nice, system = map(int, pathlib.Path('/proc/stat').read_text().split()[1:4])
  own = resource.getrusage(resource.RUSAGE_CHILDREN)
  return time.monotonic(), (user + nice + system) / os.sysconf('SC_CLK_TCK'), own.ru_utime + own.ru_stime


def _share_of_others(before):
  now, everything, own = (after - x for after, x in zip(_cpu_seconds(), before))
  return max(0.0, everything - own) / (now * (os.cpu_count() or 1))


def way_of(point: dict[str, Any]) -> Way:
  """How a point was sent.

  >>> way_of({'algorithm': 'vrl_sgd fragments=4 bits=8'})
  Way(fragments=4, delay=0, bits=8)
  """
  return Way(**{name: int(value) for name, value in (word.split('=') for word in point['algorithm'].split()[1:])})


def sent_by_formula(point: dict[str, Any]) -> float:
  """The bytes that a host sends per round: 2(D−1)/D of the payload, which is that of every worker if it is encoded.

  >>> about = {'payload': 4_000_000, 'hosts': 2, 'devices': 2, 'workers': 8}
  >>> sent_by_formula({'algorithm': 'vrl_sgd', **about})
  4000000.0
  >>> sent_by_formula({'algorithm': 'vrl_sgd bits=8', **about})  # 5/2 · (1 + 4/256) MB
  2539062.5
  """
  way, devices, payload = way_of(point), point['devices'], point['payload']
  if way.bits < 32:
    each = point['workers'] // devices
    payload *= (each + 1) / 2 * (way.bits + 32 / Quantiser(way.bits).block) / 32
  return 2 * (devices - 1) / devices * payload


def predicted(point: dict[str, Any], unlimited: dict[str, Any]) -> float:
  """The time per step by the cost model, from the time over unlimited links."""
  way, devices, period = way_of(point), point['devices'], point['period']
  network = cost_model.Network(point['workers'], devices, point['bandwidth'], overhead=cost_model.TCP_OVERHEAD)
  payload = round(sent_by_formula(point) * devices / (2 * (devices - 1)))
  step = report.training(unlimited).seconds * devices / point['workers']
  overlap = {'fragments': way.fragments, 'delay': way.delay}
  return cost_model.round_seconds(cost_model.Traffic(0, payload), period, step, network, **overlap) / period


def table(found: Sequence[dict[str, Any]]) -> str:
  """The time to the loss of every point, its bytes, and the cost model's error.

  "hidden" is the part of the communication time, that of the same transfers without a delay less the local steps, for
  which the workers do not wait.
  """
  titles = [
    'task, training loss',
    'hosts',
    'link',
    'VRL-SGD',
    'MB per round and host',
    'formula',
    'ms per step',
    'hidden',
  ]
  rows = [[*titles, 'cost model', 'steps to the loss', 's to the loss', 'times sooner', 'others']]
  by_setting = {_setting(point): point for point in found}
  for point in found:
    step = report.training(point)
    plain, unlimited, at_once = (
      by_setting.get(_setting(point | {'algorithm': algorithm, 'bandwidth': bandwidth}))
      for algorithm, bandwidth in (
        ('vrl_sgd', point['bandwidth']),
        (point['algorithm'], None),
        (way_of(point)._replace(delay=0).flags('vrl_sgd'), point['bandwidth']),
      )
    )
    measured = step.seconds * 1e3
    model = predicted(point, unlimited) * 1e3 if unlimited and point['bandwidth'] else None
    rows.append(
      [
        f'{report.TITLES[point["task"]]}, {point["loss"]:g}',
        str(point['hosts']),
        report.link(point['bandwidth']),
        next(name for name, way in WAYS.items() if way == way_of(point)) or 'plain',
        f'{step.sent / point["hosts"] * point["period"] / 1e6:.2f}',
        f'{sent_by_formula(point) / 1e6:.2f}',
        f'{measured:.1f}',
        _hidden(point, at_once, unlimited),
        f'{model:.1f} ({100 * (model / measured - 1):+.0f} %)' if model else '–',
        str(point['steps_to_loss']),
        f'{report.seconds_to_loss(point):.3g}',
        f'{report.seconds_to_loss(plain) / report.seconds_to_loss(point):.2f}' if plain else '–',
        f'{point["others"]:.0%}' + ', busy' * (point['others'] > QUIET),
      ]
    )
  return measure.table(rows)


def _setting(point):
  return point['task'], point['hosts'], point['bandwidth'], point['algorithm']


def _hidden(point, at_once, unlimited):
  """The share of the communication time for which the workers do not wait."""
  if not (way_of(point).delay and at_once and unlimited and point['bandwidth']):
    return '–'
  steps = report.training(unlimited).seconds
  communication = report.training(at_once).seconds - steps
  return f'{1 - (report.training(point).seconds - steps) / communication:.0%}' if communication > 0 else '–'


def tables(results: dict[str, Any]) -> str:
  """The machine and the table of all points."""
  ways = list(WAYS.values())
  key = lambda point: (point['task'], point['hosts'], point['bandwidth'] or float('inf'), ways.index(way_of(point)))
  return '\n\n'.join([results['machine'], table(sorted(results['points'], key=key))])


def main(argv: Sequence[str] | None = None) -> int:
  """Measures points and prints the table of all stored ones; returns the exit status."""
  tasks = list(points.tasks())
  parser = argparse.ArgumentParser(prog='python -m benchmarks.network.less_to_send', description=__doc__.split(':')[0])
  parser.add_argument('--report', action='store_true', help='only print the table of the stored points')
  parser.add_argument('--tasks', nargs='+', choices=tasks, default=tasks)
  parser.add_argument('--ways', nargs='+', choices=list(WAYS), default=list(WAYS))
  parser.add_argument('--hosts', nargs='+', type=int, choices=(2, 4), default=[2, 4])
  parser.add_argument(
    '--bandwidths', nargs='+', type=float, default=list(BANDWIDTHS), help='bits per second; 0: no limit'
  )
  parser.add_argument(
    '--rates', action='store_true', help='measure times and bytes only, and not the steps to the loss'
  )
  args = parser.parse_args(argv)
  if not args.report:
    if reason := namespaces.why_unavailable():
      print(f'skipped: {reason}')
      return 0
    bandwidths = [bandwidth or None for bandwidth in args.bandwidths]
    try:
      measure_all(args.tasks, args.hosts, bandwidths, args.ways)
    except subprocess.CalledProcessError as error:
      print(f'error: {" ".join(map(str, error.cmd))}: {error.stderr.strip()}', file=sys.stderr)
      return 1
  print(tables(json.loads(STORED.read_text())))
  return 0


if __name__ == '__main__':
  sys.exit(main())
