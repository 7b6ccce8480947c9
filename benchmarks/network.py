"""Training over a network: what it sends, and how long it takes to a loss, on hosts with slow links between them.

    python -m benchmarks network [--quick]
    python -m benchmarks.network --tasks mlp --bandwidths 1e8 --algorithms s_sgd vrl_sgd

Two hosts (`namespaces`) with one core and four workers each run S-SGD, Local SGD, VRL-SGD and CoCoD-SGD over links of 10
Mbit/s, 100 Mbit/s, 1 Gbit/s, and as fast as the machine copies. The steps to the loss are taken from a run in one
process: the trajectory does not depend on the network. Each point is two runs (`hosted`), the longer of which trains to
the loss, or for some tens of steps where that would take minutes. Points are kept in results/network.json; the second
command measures some anew.

Needs root and iproute2, and for the MLP the folder VRL_JAX_DATA with tiny_imagenet/; LeNet trains on embedded digits.
"""

import argparse
import fcntl
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import hosted, namespaces, network_report
from benchmarks.measure import machine
from vrl_jax import cost
from vrl_jax.tools.arguments import not_negative, positive

RESULTS = hosted.ROOT / 'results' / 'network.json'
ALGORITHMS = ('s_sgd', 'local_sgd', 'vrl_sgd', 'cocod_sgd')
BANDWIDTHS = (1e7, 1e8, 1e9, None)
HOSTS, WORKERS, BATCH, PERIOD = 2, 8, 32, 20
_S_SGD_PERIOD = 2  # means nothing to S-SGD, but a run of four rounds is short
PATIENCE = 200.0  # seconds of communication that a whole run may take
_LIMIT = 900.0  # seconds after which a run is ended, whatever it does


class Layout(NamedTuple):
  """Workers on devices (of all hosts together) on hosts."""

  hosts: int
  devices: int
  workers: int


LAYOUTS = (Layout(4, 4, 4), Layout(2, 8, 8), Layout(2, 2, 8))


class Task(NamedTuple):
  """What is trained, and to which loss.

  Attributes:
    config: its file.
    flags: of the config.
    loss: train loss to reach.
    epochs: in which all algorithms reach it.
    eval_every: epochs between two evaluations on the way there.
  """

  config: str
  flags: tuple[str, ...]
  loss: float
  epochs: float
  eval_every: float


def tasks() -> dict[str, Task]:
  """The tasks that there is data for."""
  found = {'lenet': Task('configs/lenet_mnist.py', ('--config.dataset=mnist_5k',), 0.45, 80.0, 1.0)}
  if folder := os.environ.get('VRL_JAX_DATA'):
    found['mlp'] = Task('configs/mlp_tiny_imagenet.py', (f'--config.data_dir={folder}',), 1.6, 20.0, 0.5)
  return found


def run(quick: bool) -> str:
  """Measures all points, or for `quick` two of them, which are not kept, and tells them."""
  reason = namespaces.why_not()
  if reason:
    return f'skipped: {reason}'
  if quick:
    task, algorithms = tasks()['lenet'], ('s_sgd', 'vrl_sgd')
    return network_report.table(
      [measure('lenet', task, name, 1e8, trajectory('lenet', task, name)) for name in algorithms]
    )
  measure_layouts()
  return network_report.report(measure_all(list(tasks()), list(ALGORITHMS), list(BANDWIDTHS)))


def measure_all(
  names: Sequence[str],
  algorithms: Sequence[str],
  bandwidths: Sequence[float | None],
  patience: float = PATIENCE,
  busy: bool = False,
) -> dict[str, Any]:
  """Measures the points of these tasks, algorithms and bandwidths, and adds them to the stored ones as they come."""
  known = tasks()
  for bandwidth, name, algorithm in itertools.product(bandwidths, names, algorithms):
    task = known[name]
    reached = trajectory(name, task, algorithm)
    point = measure(name, task, algorithm, bandwidth, reached, patience) | {'busy': busy}
    results = _add(point)
    print(network_report.line(point), flush=True)
  return results


@functools.cache
def trajectory(name: str, task: Task, algorithm: str) -> dict[str, Any]:
  """Trains in one process until the loss is reached for certain, or takes what a finished run has left in runs/network.

  Returns:
    `steps` and `loss` of the first log point with the loss or less, `start`, a folder with the initial weights, and
    `steps_per_epoch` and `parameters`.
  """
  workdir = hosted.ROOT / 'runs' / 'network' / f'{name}-{algorithm}'
  flags = [*_flags(task, algorithm), f'--config.epochs={task.epochs}', f'--config.eval_every={task.eval_every}']
  hosted.launch_here([*flags, f'--config.period={PERIOD}', f'--workdir={workdir}'])
  lines = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
  summary = json.loads((workdir / 'summary.json').read_text())
  first = next((line for line in lines if line['train_loss'] <= task.loss), None)
  if first is None:
    raise RuntimeError(f'{algorithm} does not reach {task.loss} in {task.epochs:g} epochs: see {workdir}')
  facts = {name: summary[name] for name in ('steps_per_epoch', 'parameters')}
  return {'steps': first['step'], 'loss': first['train_loss'], 'start': str(workdir), **facts}


def measure(
  name: str,
  task: Task,
  algorithm: str,
  bandwidth: float | None,
  reached: dict[str, Any],
  patience: float = PATIENCE,
) -> dict[str, Any]:
  """Measures the time to the loss over links of this bandwidth."""
  steps = steps_to_run(algorithm, reached['steps'], 4 * reached['parameters'], bandwidth, patience)
  point = {'task': name, 'algorithm': algorithm, 'bandwidth': bandwidth}
  point |= measure_runs(task, algorithm, bandwidth, Layout(HOSTS, HOSTS, WORKERS), steps, reached)
  return point | {'loss': task.loss, 'steps_to_loss': reached['steps']}


def measure_layouts() -> None:
  """Counts the bytes of VRL-SGD on LeNet for workers that have a device of their own, and that share one."""
  task = tasks()['lenet']
  reached = trajectory('lenet', task, 'vrl_sgd')
  for layout in LAYOUTS:
    point = {'task': 'lenet', 'algorithm': 'vrl_sgd', 'bandwidth': 1e9}
    point |= measure_runs(task, 'vrl_sgd', 1e9, layout, 12 * PERIOD, reached)
    _add(point)
    print(network_report.accounts([point]), flush=True)


def measure_runs(
  task: Task, algorithm: str, bandwidth: float | None, layout: Layout, steps: int, reached: dict[str, Any]
) -> dict[str, Any]:
  """Makes the hosts, and runs four rounds on them and `steps` steps."""
  period, steps_per_epoch = _round(algorithm), reached['steps_per_epoch']
  flags = [*_flags(task, algorithm), f'--config.period={period}']
  flags += [f'--config.workers={layout.workers}', f'--config.devices={layout.devices}']
  flags += [f'--config.batch_size={BATCH * WORKERS // layout.workers}']  # an epoch has as many steps for all layouts
  with namespaces.network(layout.hosts) as hosts:
    short, long = (
      hosted.launch(hosts, bandwidth, steps / steps_per_epoch, flags, pathlib.Path(reached['start']), _LIMIT)
      for steps in (4 * period, steps)
    )
  facts = {'payload': 4 * reached['parameters'], 'steps_per_epoch': steps_per_epoch, 'period': period}
  return {**layout._asdict(), **facts, 'short': short._asdict(), 'long': long._asdict()}


def steps_to_run(algorithm: str, steps: int, payload: int, bandwidth: float | None, patience: float = PATIENCE) -> int:
  """All the steps to the loss, and more if they are quick, or a few rounds if they communicate for too long."""
  every = 1 if algorithm == 's_sgd' else PERIOD
  link = cost.Cluster(WORKERS, HOSTS, bandwidth or 1e12, overhead=cost.TCP_OVERHEAD)
  seconds = lambda steps: steps / every * cost.ring_seconds(payload, link)
  if seconds(steps) > patience:
    return 12 * _round(algorithm)
  enough = 200 if algorithm == 's_sgd' else 400
  return max(steps, enough) if seconds(enough) < 15 else steps


def _round(algorithm):
  return _S_SGD_PERIOD if algorithm == 's_sgd' else PERIOD


def _flags(task, algorithm):
  return [f'--config={task.config}', *task.flags, f'--config.algorithm={algorithm}']


def _add(point):
  """Stores a point in the place of an older one of the same setting; several processes may do so at the same time."""
  about = ('task', 'algorithm', 'bandwidth', 'hosts', 'devices', 'workers')
  of = lambda one: ('loss' in one, *(one[name] for name in about))
  RESULTS.parent.mkdir(exist_ok=True)
  with open(RESULTS, 'a+') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.seek(0)
    stored = json.loads(file.read() or '{"points": []}')['points']
    results = {'machine': machine(), 'points': [one for one in stored if of(one) != of(point)] + [point]}
    file.truncate(0)
    file.write(json.dumps(results, indent=1) + '\n')
  return results


def main(argv: Sequence[str] | None = None) -> int:
  """Measures some points and adds them to the stored ones; returns the exit status."""
  known = tasks()
  parser = argparse.ArgumentParser(prog='python -m benchmarks.network', description=__doc__.split('\n')[0])
  parser.add_argument('--tasks', nargs='+', choices=list(known), default=list(known))
  parser.add_argument('--algorithms', nargs='+', choices=ALGORITHMS, default=list(ALGORITHMS))
  parser.add_argument(
    '--bandwidths', nargs='+', type=not_negative, default=list(BANDWIDTHS), help='bits a second; 0: not shaped'
  )
  parser.add_argument('--patience', type=positive, default=PATIENCE, metavar='S', help='longer runs are composed')
  parser.add_argument('--busy', action='store_true', help='mark the points: the machine has other work to do')
  parser.add_argument('--layouts', action='store_true', help='nothing but the bytes of workers with a device each')
  args = parser.parse_args(argv)
  reason = namespaces.why_not()
  if reason:
    print(f'skipped: {reason}')
    return 0
  try:
    if args.layouts:
      measure_layouts()
    else:
      bandwidths = [bandwidth or None for bandwidth in args.bandwidths]
      measure_all(args.tasks, args.algorithms, bandwidths, args.patience, args.busy)
  except subprocess.CalledProcessError as error:
    print(f'error: {" ".join(map(str, error.cmd))}: {error.stderr.strip()}', file=sys.stderr)
    return 1
  return 0


if __name__ == '__main__':
  sys.exit(main())
