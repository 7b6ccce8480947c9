"""Synthetic run and sweep directories for the tests of the report."""

import csv
import json
import math

import numpy as np
import pytest

CONVERGENCE_RATES = {'s_sgd': 1.0, 'local_sgd': 0.35, 'easgd': 0.25, 'vrl_sgd': 0.95}


def write_run(folder, points, status='finished', partition_table=None, **config):
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps(config))
  clean = lambda v: None if isinstance(v, float) and not math.isfinite(v) else v
  points = [{key: clean(value) for key, value in point.items()} for point in points]
  (folder / 'metrics.jsonl').write_text(''.join(json.dumps(point) + '\n' for point in points))
  if status:
    (folder / 'summary.json').write_text(json.dumps(points[-1] | {'status': status, 'resumed_from_step': None}))
  if partition_table:
    (folder / 'partition.json').write_text(json.dumps(partition_table))
  return folder


def lenet_points(algorithm, period=20, seed=0, epochs=30, diverges=False):
  rng = np.random.default_rng(seed)
  period = 1 if algorithm == 's_sgd' else period
  for epoch in range(epochs + 1):
    step = 235 * epoch
    loss = 0.02 + 0.39 * math.exp(-0.12 * CONVERGENCE_RATES[algorithm] * epoch) * (
      1 + 0.05 * rng.normal() * (epoch > 0)
    )
    loss = math.nan if diverges and epoch > 12 else loss * 10 ** max(0, epoch - 6) if diverges else loss
    drift = 0.0 if algorithm == 's_sgd' else 1e-3 * loss * (epoch > 0) / CONVERGENCE_RATES[algorithm]
    line = dict(
      step=step, epoch=epoch * 1.0027, communications=step // period, bytes_communicated=step // period * 432_122
    )
    line |= dict(
      train_loss=loss, step_loss=loss * 1.1, consensus_distance=drift, variance_among_workers=10 * drift + 0.01
    )
    line |= dict(correction_norm=drift, seconds=3.1 * epoch + rng.random(), examples_per_second=19_000.0)
    if epoch % 2 == 0:
      line |= dict(
        test_loss=loss * 1.1, test_accuracy=max(0.1, 1 - loss / 3) if loss == loss else 0.1, train_accuracy=0.9
      )
    yield line


def write_lenet(root, seeds=(0, 1, 2)):
  """Four algorithms with three seeds each, and a run that diverges."""
  table = [[0] * 10 for _ in range(8)]
  for i in range(80):
    table[i // 10][i // 8] = 750
  partition_table = {'table': table, 'class_names': [f'digit {i}' for i in range(10)], 'dropped': 32}
  common = dict(task='lenet_mnist', dataset='mnist', partition='by_class', workers=8)
  common |= dict(period=20, batch_size=32, learning_rate=0.005)
  entries = []
  for algorithm in CONVERGENCE_RATES:
    for seed in seeds:
      name, fields = f'{algorithm}_seed{seed}', {'algorithm': algorithm, 'seed': seed}
      points = list(lenet_points(algorithm, seed=seed))
      write_run(root / name, points, partition_table=partition_table, first_period=None, **common | fields)
      entries.append({'name': name, 'overrides': fields})
  fields = {'algorithm': 'local_sgd', 'learning_rate': 0.5, 'seed': 0}
  write_run(
    root / 'too_fast', lenet_points('local_sgd', diverges=True), 'diverged', first_period=None, **common | fields
  )
  sweep = {
    'title': 'LeNet <on> MNIST',
    'runs': [*entries, {'name': 'too_fast', 'overrides': fields}, {'name': 'later'}],
  }
  (root / 'sweep.json').write_text(json.dumps(sweep))
  return root


def quadratic_points(algorithm, b, k, first=None, steps=400, rate=0.01):
  """The quadratics of the paper's appendix: f1 = (x + 2b)^2, f2 = 2(x - b)^2, from x = 1."""
  x, delta, centre, rounds, since, period = np.ones(2), np.zeros(2), 1.0, 0, 0, first or k
  for step in range(steps + 1):
    mean = abs(centre if algorithm == 'easgd' else x.mean())
    v = np.array([2 * (x[0] + 2 * b), 4 * (x[1] - b)]) - delta
    yield dict(step=step, communications=rounds, distance_to_optimum=mean, train_loss=1.5 * mean**2 + 3 * b**2) | dict(
      bytes_communicated=8 * rounds, variance_among_workers=0.0 if algorithm == 's_sgd' else v.var(), seconds=step / 1e3
    )
    x, since = x - rate * (v.mean() if algorithm == 's_sgd' else v), since + 1
    rounds += algorithm == 's_sgd'
    if algorithm != 's_sgd' and since == period:
      if algorithm == 'easgd':
        e = x - centre
        x, centre = x - 0.45 * e, centre + 0.45 * e.sum()
      else:
        delta = delta + (x.mean() - x) / (since * rate) if algorithm == 'vrl_sgd' else delta
        x = np.full(2, x.mean())
      since, period, rounds = 0, k, rounds + 1


def write_quadratic(root):
  """The sweep of the appendix: 3 x 4 panels of 5 lines."""
  kinds = [('s_sgd', None), ('local_sgd', None), ('easgd', None), ('vrl_sgd', None), ('vrl_sgd', 1)]
  entries = []
  for b in (1, 10, 100):
    for k in (2, 5, 10, 20):
      for algorithm, first in kinds:
        fields = dict(b=b, period=k, algorithm=algorithm, first_period=first)
        name = f'{algorithm}{"_w" if first else ""}-b{b}-k{k}'
        write_run(root / name, quadratic_points(algorithm, b, k, first), task='quadratic', seed=0, **fields)
        entries.append({'name': name, 'overrides': fields})
  common = {'x': 'step', 'panels': ['b', 'period'], 'log_y': True}
  figure = [
    common | {'name': 'distance', 'y': 'distance_to_optimum'},
    common | {'name': 'variance', 'y': 'variance_among_workers'},
  ]
  (root / 'sweep.json').write_text(json.dumps({'title': 'The appendix', 'runs': entries, 'figure': figure}))
  return root


def write_csv(path, rows=40, start=0.41):
  with path.open('w', newline='') as file:
    csv.writer(file).writerows(
      [start * 0.9**i, 100 - 12 * 0.9**i, start * 0.92**i, 99 - 12 * 0.9**i] for i in range(rows)
    )
  return path


@pytest.fixture(scope='module')
def lenet(tmp_path_factory):
  return write_lenet(tmp_path_factory.mktemp('lenet') / 'sweep')


@pytest.fixture(scope='module')
def quadratic(tmp_path_factory):
  return write_quadratic(tmp_path_factory.mktemp('quadratic') / 'sweep')
