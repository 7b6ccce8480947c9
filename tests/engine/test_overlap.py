"""Rounds whose transfers are programs of their own follow the trajectory of the rounds in one program."""

import threading

import jax
import numpy as np
import optax
import pytest
from support import numpy_reference, quadratics

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.overlap import can_overlap
from vrl_jax.engine.placement import place_workers


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


PROBLEM = numpy_reference.heterogeneous()
LENGTHS = [6, 6, 5, 3]


def send(name, *, fragments=1, delay=0, bits=32):
  inner = optax.sgd(0.03, momentum=0.5)
  algorithm = vrl_jax.streaming(vrl_jax.ALGORITHMS[name](inner, axis_name=AXES), fragments)
  return vrl_jax.quantised(vrl_jax.overlapped(algorithm, delay), bits, block=4)


def make_engine(algorithm, **kwargs):
  placement = place_workers(quadratics.WORKERS, 2)
  supply = quadratics.own_data(placement, quadratics.batches(PROBLEM))
  return Engine(algorithm, quadratics.loss, placement, supply, **kwargs)


def run(engine, lengths=LENGTHS, rounds=2):
  state = engine.init(quadratics.start(np.linspace(-1.0, 2.0, quadratics.DIMENSION)))
  for length in lengths:
    state, token = engine.run(state, quadratics.items(engine, length, rounds), rounds)
    assert token.ravel()[0] == np.asarray(state.step).ravel()[0]
  return state


@pytest.mark.parametrize(
  ('name', 'sending'),
  [
    ('vrl_sgd', dict(delay=2)),
    ('vrl_sgd', dict(fragments=3, delay=2, bits=4)),
    pytest.param('scaffold', dict(fragments=2, delay=1, bits=8), marks=pytest.mark.slow),
    pytest.param('diloco', dict(fragments=2, delay=9), marks=pytest.mark.slow),
  ],
  ids=str,
)
def test_transfers_beside_the_steps_change_nothing(name, sending):
  algorithm = send(name, **sending)
  together, apart = (run(make_engine(algorithm, overlap=overlap)) for overlap in (False, True))
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-12), together, apart)


def test_the_collective_runs_in_another_thread(monkeypatch):
  engine, seen = make_engine(send('vrl_sgd', fragments=3, delay=2), overlap=True), []
  compiled = engine._compiled_once

  def noted(key, lower):
    program = compiled(key, lower)
    return lambda *args: seen.append((key[0], threading.current_thread().name.split('_')[0])) or program(*args)

  monkeypatch.setattr(engine, '_compiled_once', noted)
  run(engine, lengths=[6], rounds=2)
  threads = {name: thread for name, thread in seen if isinstance(name, str)}
  assert threads == {'steps': 'MainThread', 'outgoing': 'MainThread', 'exchange': 'transfer'}
  assert [name for name, _ in seen].count('exchange') == 6


def test_the_local_steps_have_no_collective():
  engine = make_engine(send('vrl_sgd', fragments=3, delay=2, bits=4), overlap=True)
  run(engine, lengths=[6], rounds=1)
  collective = {
    key[0]: any(op in p.as_text() for op in ('all-to-all', 'all-reduce')) for key, p in engine._compiled.items()
  }
  assert collective.pop('exchange')
  assert not any(collective.values()) and len(collective) > 3


@pytest.mark.parametrize('sending', [dict(fragments=3), dict(bits=4), {}], ids=str)
def test_without_a_delay_there_is_one_program(sending):
  assert not can_overlap(send('vrl_sgd', **sending), 6)
  engine = make_engine(send('vrl_sgd', **sending), overlap=True)
  run(engine, lengths=[6])
  assert [key[0] for key in engine._compiled] == ['run']
