"""There is a sweep for every figure of the paper, with the paper's settings."""

import importlib

import numpy as np
import pytest

from vrl_jax.accounting import theory
from vrl_jax.cli.flags import parse
from vrl_jax.config.fields import validate
from vrl_jax.errors import UserError
from vrl_jax.training.sweep import sweep_runs

# b, γ, k of the paper's table of settings
PAPER = {'lenet_mnist': (32, 0.005, 20), 'textcnn_dbpedia': (64, 0.01, 50), 'mlp_tiny_imagenet': (32, 0.025, 20)}
VARIANTS = {
  '': ('by_class', 1),
  ':non_identical': ('by_class', 1),
  ':identical': ('identical', 1),
  ':half': ('by_class', 0.5),
  ':double': ('by_class', 2),
}


def runs_of(argument, *flags):
  config, *_ = parse(['launch.py', f'--config=configs/figures/{argument}', *flags])
  runs = sweep_runs(config)
  for _, run in runs:
    validate(run)
  return runs


@pytest.mark.parametrize('variant', VARIANTS)
@pytest.mark.parametrize('task', PAPER)
def test_the_three_tasks(task, variant):
  batch, rate, period = PAPER[task]
  partition, factor = VARIANTS[variant]
  runs = runs_of(f'{task}.py{variant}', '--config.epochs=3')
  assert [name for name, _ in runs] == ['S-SGD', 'Local SGD', 'EASGD', 'VRL-SGD', 'VRL-SGD-W']
  for name, run in runs:
    assert (run.batch_size, run.learning_rate, run.period) == (batch, rate, period * factor)
    assert (run.workers, run.weight_decay, run.partition, run.epochs) == (8, 1e-4, partition, 3)
    assert run.first_period == (1 if name == 'VRL-SGD-W' else None)


@pytest.mark.parametrize('variant', ['published', 'published_identical'])
def test_the_published_curves(variant):
  runs = runs_of(f'lenet_mnist.py:{variant}')
  assert [name for name, _ in runs] == ['S-SGD', 'Local SGD', 'VRL-SGD']
  for _, run in runs:
    assert (run.init_loss, run.learning_rate, run.period) == (0.4136, 0.005, 20)
    assert run.partition == ('identical' if 'identical' in variant else 'by_class')


@pytest.mark.parametrize(
  ('variant', 'algorithm', 'number'), [('', 'vrl_sgd', 6), (':diloco', 'diloco', 6), (':four_bits', 'vrl_sgd', 2)]
)
def test_less_to_send(variant, algorithm, number):
  runs = runs_of(f'less_to_send.py{variant}')
  ways = [(run.fragments, run.delay, run.bits) for _, run in runs]
  assert len(set(ways)) == len(ways) == number and ways[0] == (1, 0, 32)
  assert all(run.algorithm == algorithm and run.delay <= run.period // run.fragments for _, run in runs)


def test_an_unknown_way_to_send_is_refused():
  with pytest.raises(UserError, match="unknown variant '2_bits', must be one of diloco, four_bits"):
    runs_of('less_to_send.py:2_bits')


def test_unknown_variant_is_refused():
  with pytest.raises(
    UserError, match="unknown variant 'triple', must be one of .*double, published, published_identical"
  ):
    runs_of('lenet_mnist.py:triple')


@pytest.mark.parametrize('name', ['easgd_alpha', 'momentum', 'quadratic', 'robustness'])
def test_the_others(name):
  runs, module = runs_of(f'{name}.py'), importlib.import_module(f'configs.figures.{name}')
  assert module.__doc__.count(f'configs/figures/{name}.py') == 1
  assert len(runs) >= 8


def test_momentum_keeps_the_effective_learning_rate():
  for _, run in runs_of('momentum.py'):
    assert run.learning_rate / (1 - run.momentum) == pytest.approx(0.01)


def test_robustness_is_a_full_grid():
  runs = dict(runs_of('robustness.py'))
  cells = {(run.algorithm, run.b, run.period, run.learning_rate) for run in runs.values()}
  assert len(cells) == len(runs) == np.prod([len({cell[i] for cell in cells}) for i in range(4)])


def test_period_limit_and_speedup_are_within_the_theory():
  assert len(runs_of('period_limit.py')) == 14
  assert theory.period_bound('vrl_sgd', 16384, 4) == 16
  assert theory.period_bound('local_sgd', 16384, 4) == pytest.approx(4)
  runs = dict(runs_of('speedup.py'))
  assert [run.period for name, run in runs.items() if name.startswith('vrl')] == [45, 16, 5, 2]
  for run in runs.values():
    assert len(run.a) == len(run.c) == run.workers
    assert run.learning_rate < 1 / (2 * 2 * max(run.a))
