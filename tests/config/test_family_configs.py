"""VRL-SGD's relatives, other optimizers and changing periods through the real training loop."""

import json

import jax
import pytest
from support.eight_quadratics import get_config

import vrl_jax
from vrl_jax.config.algorithms import algorithm_options
from vrl_jax.engine.periods import make_periods, stages_from_losses, stagewise
from vrl_jax.errors import UserError
from vrl_jax.training.algorithm import make_algorithm
from vrl_jax.training.loop import train_and_evaluate


def _run(folder, **fields):
  config = get_config()
  config.update(steps=60, period=5, first_period=None, noise=0.0, momentum=0.0, x64=True)
  config.update(devices=1, checkpoint_every=0)
  config.update(fields)
  summary = train_and_evaluate(config, folder)
  lines = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
  return summary, lines


def test_stages_set_the_lengths_of_the_rounds(tmp_path):
  stages = stagewise(2, (20, 40))
  summary, lines = _run(tmp_path, period_stages=stages)
  assert summary['status'] == 'finished'
  periods = make_periods(60, 5, None, stages)
  assert [length for _, length in periods.rounds()] == [2] * 10 + [4] * 5 + [8, 8, 4]
  assert summary['communications'] == 18
  for line in lines:
    assert line['communications'] == periods.rounds_before(line['step'])


@pytest.mark.parametrize('every_step', [False, True])
def test_a_period_that_follows_the_loss(tmp_path, every_step):
  fields = {'period': 2, 'max_period': 6, 'learning_rate': 0.02, 'b': 0.1, 'x0': 8.0, 'log_every_step': every_step}
  summary, lines = _run(tmp_path, **fields)
  stages = stages_from_losses(2, [(line['step'], line['train_loss']) for line in lines], max_period=6)
  assert [k for _, k in stages] == [4, 6]
  periods = make_periods(60, 2, None, stages)
  assert summary['communications'] == len(list(periods.rounds())) < 30
  for line in lines:
    assert line['communications'] == periods.rounds_before(line['step'])
  if not every_step:  # a log point is the end of the first round that reaches its time
    assert all(line['step'] in {start for start, _ in periods.rounds()} | {60} for line in lines)


def test_partial_participation_sends_less(tmp_path):
  full, _ = _run(tmp_path / 'full', algorithm='scaffold')
  half, _ = _run(tmp_path / 'half', algorithm='scaffold', participation=0.5)
  vrl, _ = _run(tmp_path / 'vrl', algorithm='vrl_sgd')
  assert half['bytes_communicated'] == full['bytes_communicated'] / 2 == vrl['bytes_communicated']
  assert full['distance_to_optimum'] == pytest.approx(vrl['distance_to_optimum'], rel=1e-9)
  assert half['distance_to_optimum'] != full['distance_to_optimum']


def test_the_seed_of_the_run_draws_the_subsets(monkeypatch):
  given = {}

  def spy(inner, *, participation=1.0, seed=0, axis_name=vrl_jax.AXIS):
    given.update(participation=participation, seed=seed)
    return vrl_jax.scaffold(inner, participation=participation, seed=seed, axis_name=axis_name)

  monkeypatch.setitem(vrl_jax.ALGORITHMS, 'scaffold', spy)
  config = get_config()
  config.update(algorithm='scaffold', participation=0.25, seed=7)
  make_algorithm(config, 60)
  assert given == {'participation': 0.25, 'seed': 7}
  assert 'seed' not in algorithm_options()  # so that no other algorithm refuses one


@pytest.mark.parametrize('algorithm', ['vrl_adaptive', 'diloco'])
def test_adamw(tmp_path, algorithm):
  with jax.numpy_dtype_promotion('standard'):  # optax's Adam needs it
    summary, lines = _run(tmp_path, algorithm=algorithm, optimizer='adamw', learning_rate=0.05)
  assert summary['distance_to_optimum'] < lines[0]['distance_to_optimum']


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'optimizer': 'adam'}, "optimizer='adam', must be one of sgd, adamw"),
    ({'optimizer': 'adamw', 'momentum': 0.9}, "momentum=0.9 is not an option of optimizer='adamw'"),
    ({'participation': 0.5}, "participation=0.5 is not an option of algorithm='vrl_sgd'"),
    ({'algorithm': 'scaffold', 'participation': 1.5}, "algorithm='scaffold': participation=1.5, must be in"),
    ({'algorithm': 'd2', 'mixing': 'star'}, "mixing='star', must be one of ring, complete"),
    ({'period_stages': ((5, 0),)}, 'period_stages='),
    ({'max_period': 4}, 'max_period=4, must be at least the period, 5'),
    ({'max_period': 0}, 'max_period=0, must be an integer of at least 1'),
    ({'max_period': 9, 'period_stages': ((5, 6),)}, 'max_period=9 cannot be combined with period_stages='),
  ],
)
def test_bad_fields(tmp_path, fields, message):
  with pytest.raises(UserError, match=message):
    _run(tmp_path, **fields)
