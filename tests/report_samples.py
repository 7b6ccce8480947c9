"""Folders of made-up runs and sweeps for the report."""

import csv
import json
import math

import numpy as np
import pytest

SLOWNESS = {'s_sgd': 1.0, 'local_sgd': 0.35, 'easgd': 0.25, 'vrl_sgd': 0.95}


def write_run(folder, lines, status='finished', shares=None, **config):
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps(config))
  clean = lambda v: None if isinstance(v, float) and not math.isfinite(v) else v
  lines = [{key: clean(value) for key, value in line.items()} for line in lines]
  (folder / 'metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
  if status:
    (folder / 'summary.json').write_text(json.dumps(lines[-1] | {'status': status, 'resumed_from_step': None}))
  if shares:
    (folder / 'partition.json').write_text(json.dumps(shares))
  return folder


def lenet_lines(algorithm, period=20, seed=0, epochs=30, blows_up=False):
  rng = np.random.default_rng(seed)
  period = 1 if algorithm == 's_sgd' else period
  for epoch in range(epochs + 1):
    step = 235 * epoch
    loss = 0.02 + 0.39 * math.exp(-0.12 * SLOWNESS[algorithm] * epoch) * (1 + 0.05 * rng.normal() * (epoch > 0))
    loss = math.nan if blows_up and epoch > 12 else loss * 10 ** max(0, epoch - 6) if blows_up else loss
    drift = 0.0 if algorithm == 's_sgd' else 1e-3 * loss * (epoch > 0) / SLOWNESS[algorithm]
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
  """Four algorithms, three seeds, and one run that diverges."""
  table = [[0] * 10 for _ in range(8)]
  for i in range(80):
    table[i // 10][i // 8] = 750
  shares = {'table': table, 'class_names': [f'digit {i}' for i in range(10)], 'dropped': 32}
  common = dict(task='lenet_mnist', period=20, workers=8, batch_size=32, learning_rate=0.005, partition='by_class')
  entries = []
  for algorithm in SLOWNESS:
    for seed in seeds:
      name, own = f'{algorithm}_seed{seed}', {'algorithm': algorithm, 'seed': seed}
      lines = list(lenet_lines(algorithm, seed=seed))
      write_run(root / name, lines, shares=shares, first_period=None, **common | own)
      entries.append({'name': name, 'overrides': own})
  own = {'algorithm': 'local_sgd', 'learning_rate': 0.5, 'seed': 0}
  write_run(root / 'too_fast', lenet_lines('local_sgd', blows_up=True), 'diverged', first_period=None, **common | own)
  sweep = {'title': 'LeNet <on> MNIST', 'runs': [*entries, {'name': 'too_fast', 'overrides': own}, {'name': 'later'}]}
  (root / 'sweep.json').write_text(json.dumps(sweep))
  return root


def quadratic_lines(algorithm, b, k, first=None, steps=400, rate=0.01):
  """The paper's appendix: f1 = (x + 2b)^2, f2 = 2(x - b)^2, from x = 1."""
  x, delta, centre, sent, since, due = np.ones(2), np.zeros(2), 1.0, 0, 0, first or k
  for step in range(steps + 1):
    mean = abs(centre if algorithm == 'easgd' else x.mean())
    v = np.array([2 * (x[0] + 2 * b), 4 * (x[1] - b)]) - delta
    yield dict(step=step, communications=sent, distance_to_optimum=mean, train_loss=1.5 * mean**2 + 3 * b**2) | dict(
      bytes_communicated=8 * sent, variance_among_workers=0.0 if algorithm == 's_sgd' else v.var(), seconds=step / 1e3
    )
    x, since = x - rate * (v.mean() if algorithm == 's_sgd' else v), since + 1
    sent += algorithm == 's_sgd'
    if algorithm != 's_sgd' and since == due:
      if algorithm == 'easgd':
        e = x - centre
        x, centre = x - 0.45 * e, centre + 0.45 * e.sum()
      else:
        delta = delta + (x.mean() - x) / (since * rate) if algorithm == 'vrl_sgd' else delta
        x = np.full(2, x.mean())
      since, due, sent = 0, k, sent + 1


def write_quadratic(root):
  """The appendix's sweep: 3 x 4 panels of 5 lines."""
  kinds = [('s_sgd', None), ('local_sgd', None), ('easgd', None), ('vrl_sgd', None), ('vrl_sgd', 1)]
  entries = []
  for b in (1, 10, 100):
    for k in (2, 5, 10, 20):
      for algorithm, first in kinds:
        own = dict(b=b, period=k, algorithm=algorithm, first_period=first)
        name = f'{algorithm}{"_w" if first else ""}-b{b}-k{k}'
        write_run(root / name, quadratic_lines(algorithm, b, k, first), task='quadratic', seed=0, **own)
        entries.append({'name': name, 'overrides': own})
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
