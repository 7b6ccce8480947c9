"""What `network` has measured, as tables and a figure, and the model of `vrl_jax.cost` beside it.

    python -m benchmarks.network_report

Reads results/network.json, prints the tables and puts them into docs/scaling.md; `network_figure` draws the figure.
"""

import json
import math
from typing import Any

from benchmarks import hosted, measure
from vrl_jax import cost
from vrl_jax.communication import Traffic
from vrl_jax.report import names

RESULTS = hosted.ROOT / 'results' / 'network.json'
PAGE = hosted.ROOT / 'docs' / 'scaling.md'
TITLES = {'lenet': 'LeNet', 'mlp': 'MLP'}
_LENET_ARRAYS = 10
_MESSAGE = 750  # bytes: frames, gloo's own heads and acknowledgements, measured with arrays of 84 numbers


def training(point: dict[str, Any]) -> hosted.Training:
  """Seconds and bytes of a step, of plain rounds alone."""
  return hosted.training(hosted.Run(**point['short']), hosted.Run(**point['long']))


def link(bandwidth: float | None) -> str:
  """A bandwidth for people.

  >>> link(1e7), link(1e9), link(None)
  ('10 Mbit/s', '1 Gbit/s', 'not shaped')
  """
  if bandwidth is None:
    return 'not shaped'
  return f'{bandwidth / 1e6:g} Mbit/s' if bandwidth < 1e9 else f'{bandwidth / 1e9:g} Gbit/s'


def seconds_to_loss(point: dict[str, Any]) -> float:
  """The steps to the loss in plain rounds."""
  return training(point).seconds * point['steps_to_loss']


def is_whole(point: dict[str, Any]) -> bool:
  """Whether the run over the network trained all the way to the loss."""
  return point['long']['steps'] >= point['steps_to_loss']


def line(point: dict[str, Any]) -> str:
  """A point in a line."""
  step = training(point)
  return (
    f'{point["task"]}, {link(point["bandwidth"])}, {names.algorithm(point["algorithm"])}: {step.seconds * 1e3:.1f} ms a '
    f'step, {names.bytes_(step.sent / point["hosts"])} from each host; {seconds_to_loss(point):.1f} s to the loss'
  )


def table(points: list[dict[str, Any]]) -> str:
  """Every setting: bytes on the wire, seconds of an epoch, seconds to the loss."""
  rows = [
    [
      'task, train loss',
      'link',
      'algorithm',
      'MB an epoch on the wire, each host',
      'payload by 2(D−1)/D',
      '`bytes_communicated`',
      's an epoch',
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
        ('whole' if is_whole(point) else f'{point["long"]["steps"]} steps') + ', busy' * point['busy'],
      ]
    )
  return measure.table(rows)


def ring_bytes(point: dict[str, Any]) -> float:
  """What the formula says that a host sends in a step: 2(D−1)/D of what is reduced, over one edge of the ring."""
  devices, every = point['devices'], 1 if point['algorithm'] == 's_sgd' else point['period']
  return 2 * (devices - 1) / devices * point['payload'] / every


def wire_bytes(point: dict[str, Any]) -> float:
  """`ring_bytes` as they are on the wire, for LeNet: with the headers of full frames, and what every message costs.

  Each of the model's arrays is reduced by itself, in 2(D−1) turns.
  """
  every = 1 if point['algorithm'] == 's_sgd' else point['period']
  turns = 2 * (point['devices'] - 1) * _LENET_ARRAYS / every
  return cost.TCP_OVERHEAD * ring_bytes(point) + _MESSAGE * turns


def accounts(points: list[dict[str, Any]]) -> str:
  """The bytes of a round against the formulas, for each way to lay the workers out."""
  titles = ['hosts × devices × workers', 'each host sent', '2(D−1)/D × payload', 'ratio', 'with headers', 'ratio']
  rows = [[*titles, 'all sent, inside hosts too', '`bytes_communicated` × workers', 'ratio']]
  for point in points:
    step, k = training(point), point['period']
    each, ring, wire = (k * value for value in (step.sent / point['hosts'], ring_bytes(point), wire_bytes(point)))
    total, said = (step.sent + step.inside) * k, step.bytes_communicated * point['workers'] * k
    layout = (point['hosts'], point['devices'] // point['hosts'], point['workers'] // point['devices'])
    cells = [names.bytes_(each), names.bytes_(ring), f'{each / ring:.3f}', names.bytes_(wire), f'{each / wire:.3f}']
    rows.append([' × '.join(map(str, layout)), *cells, names.bytes_(total), names.bytes_(said), f'{total / said:.3f}'])
  return measure.table(rows)


def predicted(point: dict[str, Any], unshaped: dict[str, Any]) -> float:
  """The model's seconds of a step, from the step's time without a slow link and the formula of the ring."""
  every_step = point['algorithm'] == 's_sgd'
  traffic = Traffic(point['payload'] * every_step, point['payload'] * (not every_step))
  cluster = cost.Cluster(point['workers'], point['devices'], point['bandwidth'], overhead=cost.TCP_OVERHEAD)
  alone = training(unshaped).seconds * point['devices'] / point['workers']
  return cost.round_seconds(traffic, point['period'], alone, cluster) / point['period']


def model(points: list[dict[str, Any]]) -> str:
  """The model's error at every point with a shaped link."""
  unshaped = {(one['task'], one['algorithm']): one for one in points if one['bandwidth'] is None}
  rows = [['task', 'link', 'algorithm', 'ms a step, measured', 'model', 'error']]
  for point in points:
    base = unshaped.get((point['task'], point['algorithm']))
    if base is None or point['bandwidth'] is None:
      continue
    seen, said = training(point).seconds, predicted(point, base)
    cells = [TITLES[point['task']], link(point['bandwidth']), names.algorithm(point['algorithm'])]
    rows.append([*cells, f'{seen * 1e3:.1f}', f'{said * 1e3:.1f}', f'{100 * (said / seen - 1):+.0f} %'])
  return measure.table(rows)


def parts(results: dict[str, Any]) -> dict[str, str]:
  """The tables by the names that they have in docs/scaling.md."""
  points, laid_out = sorted_points(results)
  return {'layouts': accounts(laid_out), 'table': table(points), 'model': model(points)}


def report(results: dict[str, Any]) -> str:
  """All tables."""
  return '\n\n'.join([results['machine'], *parts(results).values()])


def with_parts(page: str, results: dict[str, Any]) -> str:
  """A page with the tables in their places: between `<!-- name -->` and `<!-- end -->`."""
  for name, text in parts(results).items():
    begin, end = f'<!-- {name} -->\n', '<!-- end -->\n'
    head, rest = page.split(begin, 1)
    page = f'{head}{begin}\n{text}\n\n{end}{rest.split(end, 1)[1]}'
  return page


def sorted_points(results: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """The points with a loss to reach, and those of the layouts."""
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
