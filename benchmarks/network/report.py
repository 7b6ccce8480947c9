"""Tables of the network benchmark, compared with `vrl_jax.accounting.cost_model`: python -m benchmarks.network.report.

Reads results/data/network.json and network_islands.json, prints the tables and writes them into docs/scaling.md.
"""

import json
import math
from typing import Any

from benchmarks import measure
from benchmarks.network import RESULTS, ROOT, islands, runs
from vrl_jax.accounting import cost_model
from vrl_jax.accounting.traffic import Traffic
from vrl_jax.report import names

PAGE = ROOT / 'docs' / 'scaling.md'
TITLES = {'lenet': 'LeNet', 'mlp': 'MLP'}
_LENET_ARRAYS = 10
_MESSAGE = 750  # bytes: frames, gloo's headers and acknowledgements, measured with arrays of 84 numbers


def training(point: dict[str, Any]) -> runs.Training:
  """The time and the bytes of a step in plain rounds."""
  return runs.training(runs.Run(**point['short']), runs.Run(**point['long']))


def link(bandwidth: float | None) -> str:
  """A readable bandwidth.

  >>> link(1e7), link(1e9), link(None)
  ('10 Mbit/s', '1 Gbit/s', 'unlimited')
  """
  if bandwidth is None:
    return 'unlimited'
  return f'{bandwidth / 1e6:g} Mbit/s' if bandwidth < 1e9 else f'{bandwidth / 1e9:g} Gbit/s'


def seconds_to_loss(point: dict[str, Any]) -> float:
  """The time that the steps to the loss take in plain rounds."""
  return training(point).seconds * point['steps_to_loss']


def is_complete(point: dict[str, Any]) -> bool:
  """Whether the run over the network reached the loss; otherwise its time is extrapolated."""
  return point['long']['steps'] >= point['steps_to_loss']


def line(point: dict[str, Any]) -> str:
  """A point as one line of text."""
  step = training(point)
  return (
    f'{point["task"]}, {link(point["bandwidth"])}, {point["algorithm"]}: {step.seconds * 1e3:.1f} ms '
    f'per step, {names.format_bytes(step.sent / point["hosts"])} per host; {seconds_to_loss(point):.1f} s to the loss'
  )


def table(points: list[dict[str, Any]]) -> str:
  """For every point: bytes on the wire, time per epoch, time to the loss."""
  rows = [
    [
      'task, training loss',
      'link',
      'algorithm',
      'MB per epoch on the wire, per host',
      '2(D−1)/D × payload',
      '`bytes_communicated`',
      's per epoch',
      'steps to the loss',
      's to the loss',
      'run',
    ]
  ]
  for point in points:
    step, epoch = training(point), point['steps_per_epoch']
    rows.append(
      [
        f'{TITLES[point["task"]]}, {point["loss"]:g}',
        link(point['bandwidth']),
        names.algorithm(point['algorithm']),
        f'{step.sent / point["hosts"] * epoch / 1e6:.2f}',
        f'{ring_bytes(point) * epoch / 1e6:.2f}',
        f'{step.bytes_communicated * epoch / 1e6:.2f}',
        _seconds(step.seconds * epoch),
        str(point['steps_to_loss']),
        _seconds(seconds_to_loss(point)),
        ('complete' if is_complete(point) else f'{point["long"]["steps"]} steps') + ', busy' * point['busy'],
      ]
    )
  return measure.table(rows)


def ring_bytes(point: dict[str, Any]) -> float:
  """The bytes that a host sends in a step by the formula: 2(D−1)/D times the payload, over one edge of the ring."""
  devices, every = point['devices'], 1 if point['algorithm'] == 's_sgd' else point['period']
  return 2 * (devices - 1) / devices * point['payload'] / every


def wire_bytes(point: dict[str, Any]) -> float:
  """`ring_bytes` on the wire, for LeNet: with the headers of full frames and the overhead of every message.

  Each array of the model is reduced separately, in 2(D−1) turns.
  """
  every = 1 if point['algorithm'] == 's_sgd' else point['period']
  turns = 2 * (point['devices'] - 1) * _LENET_ARRAYS / every
  return cost_model.TCP_OVERHEAD * ring_bytes(point) + _MESSAGE * turns


def layout_table(points: list[dict[str, Any]]) -> str:
  """The bytes of a round compared with the formulas, for each layout of the workers."""
  titles = ['hosts × devices × workers', 'sent per host', '2(D−1)/D × payload', 'ratio', 'with headers', 'ratio']
  rows = [[*titles, 'sent in total, also inside hosts', '`bytes_communicated` × workers', 'ratio']]
  for point in points:
    step, k = training(point), point['period']
    per_host, ring, wire = (k * value for value in (step.sent / point['hosts'], ring_bytes(point), wire_bytes(point)))
    total, counted = (step.sent + step.inside) * k, step.bytes_communicated * point['workers'] * k
    layout = (point['hosts'], point['devices'] // point['hosts'], point['workers'] // point['devices'])
    cells = [
      names.format_bytes(per_host),
      names.format_bytes(ring),
      f'{per_host / ring:.3f}',
      names.format_bytes(wire),
      f'{per_host / wire:.3f}',
      names.format_bytes(total),
      names.format_bytes(counted),
      f'{total / counted:.3f}',
    ]
    rows.append([' × '.join(map(str, layout)), *cells])
  return measure.table(rows)


def predicted(point: dict[str, Any], unlimited: dict[str, Any]) -> float:
  """The time per step by the cost model, from the time over unlimited links and the formula of the ring."""
  every_step = point['algorithm'] == 's_sgd'
  traffic = Traffic(point['payload'] * every_step, point['payload'] * (not every_step))
  cluster = cost_model.Network(point['workers'], point['devices'], point['bandwidth'], overhead=cost_model.TCP_OVERHEAD)
  seconds = training(unlimited).seconds * point['devices'] / point['workers']
  return cost_model.round_seconds(traffic, point['period'], seconds, cluster) / point['period']


def model_table(points: list[dict[str, Any]]) -> str:
  """The error of the cost model at every point with a limited link."""
  unlimited = {(one['task'], one['algorithm']): one for one in points if one['bandwidth'] is None}
  rows = [['task', 'link', 'algorithm', 'ms per step, measured', 'model', 'error']]
  for point in points:
    base = unlimited.get((point['task'], point['algorithm']))
    if base is None or point['bandwidth'] is None:
      continue
    measured, modelled = training(point).seconds, predicted(point, base)
    cells = [TITLES[point['task']], link(point['bandwidth']), names.algorithm(point['algorithm'])]
    rows.append([*cells, f'{measured * 1e3:.1f}', f'{modelled * 1e3:.1f}', f'{100 * (modelled / measured - 1):+.0f} %'])
  return measure.table(rows)


def parts(results: dict[str, Any]) -> dict[str, str]:
  """The tables, by their names in docs/scaling.md."""
  points, layouts = sorted_points(results)
  return {
    'layouts': layout_table(layouts),
    'table': table(points),
    'model': model_table(points),
    'islands': islands.table(islands.stored()),
  }


def report(results: dict[str, Any]) -> str:
  """The machine and all tables."""
  return '\n\n'.join([results['machine'], *parts(results).values()])


def with_parts(page: str, results: dict[str, Any]) -> str:
  """The page with the current tables, each between `<!-- name -->` and `<!-- end -->`."""
  for name, text in parts(results).items():
    begin, end = f'<!-- {name} -->\n', '<!-- end -->\n'
    head, rest = page.split(begin, 1)
    page = f'{head}{begin}\n{text}\n\n{end}{rest.split(end, 1)[1]}'
  return page


def sorted_points(results: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """The points with a time to a loss, and those of the layouts."""
  order = ('s_sgd', 'local_sgd', 'vrl_sgd', 'cocod_sgd')
  key = lambda point: (point['task'], point['bandwidth'] or math.inf, order.index(point['algorithm']))
  timed = [point for point in results['points'] if 'loss' in point]
  return sorted(timed, key=key), [point for point in results['points'] if 'loss' not in point]


def _seconds(value):
  return f'{value:.3g}' if value < 1000 else f'{value:,.0f}'


if __name__ == '__main__':
  stored = json.loads(RESULTS.read_text())
  print(report(stored))
  PAGE.write_text(with_parts(PAGE.read_text(), stored))
