"""What is sent: the compiled program and the formula agree for every algorithm, and the tool says so."""

import functools

import jax
import numpy as np
import optax
import pytest

import vrl_jax
from vrl_jax import rounds
from vrl_jax.communication import Traffic, traffic
from vrl_jax.config_files import load_config
from vrl_jax.errors import UserError
from vrl_jax.tools import communication

DIMENSION, PERIOD = 9, 5
VECTOR = 4 * DIMENSION
# The vectors of a round of five steps: in every step, and at its end.
VECTORS = {
  's_sgd': (1, 0),
  'local_sgd': (0, 1),
  'easgd': (0, 1),
  'vrl_sgd': (0, 1),
  'vrl_adaptive': (0, 2),
  'cocod_sgd': (0, 1),
  'scaffold': (0, 2),
  'slowmo': (0, 1),
  'diloco': (0, 1),
  'd2': (2, 0),
  'extra': (2, 0),
}


def _config(name, devices=2, **fields):
  config = load_config('quadratic')
  config.update(a=(), c=(), dimension=DIMENSION, workers=8, devices=devices, x64=False, period=PERIOD, algorithm=name)
  config.update(fields)
  return config


@functools.cache
def _account(name):
  return communication.account(_config(name))


def test_every_algorithm_has_an_expectation():
  assert VECTORS.keys() == vrl_jax.ALGORITHMS.keys()


@pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
def test_the_compiled_program_sends_what_the_formula_says(name):
  per_step, per_round = VECTORS[name]
  one = _account(name)
  assert one.compiled == one.formula == (PERIOD * per_step + per_round) * VECTOR
  assert sum(c.bytes for c in one.steps) == per_step * VECTOR
  where = one.beside if name == 'cocod_sgd' else one.after
  assert sum(c.bytes for c in where) == sum(c.bytes for c in one.beside + one.after) == per_round * VECTOR


@pytest.mark.parametrize('name', ['vrl_sgd', 'd2'])
def test_one_worker_a_device(name):
  one = communication.account(_config(name, devices=8))
  assert (one.compiled, one.formula) == (_account(name).compiled, _account(name).formula)


def test_averaged_buffers_and_partial_participation():
  mean = communication.account(_config('vrl_sgd', momentum=0.9, buffers='mean'))
  assert mean.compiled == mean.formula == 2 * VECTOR
  half = communication.account(_config('scaffold', participation=0.5))
  assert half.compiled == half.formula == 2 * VECTOR  # all workers run the program, masked ...
  assert half.sent == round(2 * 7 / 8 * 2 * VECTOR / 2)  # ... but half of them send


def _traffic(name, inner=None, **options):
  params = {'a': np.zeros((3, 2), np.float32), 'b': np.zeros(3, np.float32)}
  algorithm = vrl_jax.ALGORITHMS[name](inner or optax.sgd(0.1), axis_name=rounds.AXES, **options)
  return traffic(algorithm, params)


def test_traffic():
  assert _traffic('s_sgd') == Traffic(per_step=36, per_round=0)
  assert _traffic('vrl_sgd') == Traffic(per_step=0, per_round=36)
  assert _traffic('local_sgd', optax.sgd(0.1, momentum=0.9), buffers='mean') == Traffic(per_step=0, per_round=72)
  assert _traffic('scaffold', participation=0.25) == Traffic(per_step=0, per_round=72, participation=0.25)
  assert _traffic('d2') == Traffic(per_step=0, per_round=0, to_neighbours=72)
  assert _traffic('d2', mixing='complete') == Traffic(per_step=36, per_round=0)


def test_traffic_passes_through_the_combinators():
  params = np.zeros(9, np.float32)
  scaffold = vrl_jax.scaffold(optax.sgd(0.1), participation=0.5, axis_name=rounds.AXES)
  for wrapped in (vrl_jax.precede(optax.clip(1.0), scaffold), vrl_jax.with_outer_optimizer(scaffold, optax.sgd(0.5))):
    assert traffic(wrapped, params) == Traffic(per_step=0, per_round=72, participation=0.5)


def test_bytes_and_communications():
  assert Traffic(0, 80).ring_bytes(steps=10, rounds=5, workers=8) == 700  # 5 · 80 · 2 · 7/8
  assert Traffic(80, 0).ring_bytes(steps=10, rounds=5, workers=8) == 1400
  assert Traffic(0, 0, to_neighbours=80).ring_bytes(steps=10, rounds=5, workers=8) == 800
  assert Traffic(0, 80, participation=0.25).ring_bytes(steps=10, rounds=5, workers=8) == 175
  assert Traffic(0, 80, participation=0.01).ring_bytes(steps=10, rounds=8, workers=8) == 140  # at least one worker
  assert Traffic(80, 80, 80).ring_bytes(steps=10, rounds=5, workers=1) == 0
  assert Traffic(0, 80).communications(10, 5) == 5
  assert Traffic(80, 0).communications(10, 5) == Traffic(0, 0, 80).communications(10, 5) == 10


def test_one_device_is_refused():
  with pytest.raises(UserError, match='workers=8 on one device'):
    communication.account(_config('vrl_sgd', devices=1))


def test_the_tool(capsys):
  flags = ['--config.dimension=9', '--config.algorithm=scaffold', '--config.devices=2', '--config.period=5']
  assert communication.main(['--config', 'quadratic', *flags]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == '72 B of parameters, a round of 5 steps'  # float64
  assert lines[2].split() == 'SCAFFOLD – – 1 all-reduce, 144 B 144 B 144 B 144 B'.split()
  assert communication.main(['--config', 'nowhere']) == 2
  assert 'nowhere' in capsys.readouterr().err
  assert jax.config.jax_enable_x64 is False


def test_all_covers_the_registry(monkeypatch, capsys):
  monkeypatch.setattr(communication, 'account', lambda config: _account('vrl_sgd')._replace(algorithm=config.algorithm))
  assert communication.main(['--config', 'quadratic', '--config.devices=2', '--all', '--config.alpha=0.2']) == 0
  assert len(capsys.readouterr().out.splitlines()) == 2 + len(vrl_jax.ALGORITHMS)
