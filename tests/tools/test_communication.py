"""The communication tool: for every algorithm the compiled program sends what the traffic formula says."""

import functools
import itertools
import types

import jax
import pytest

import vrl_jax
from vrl_jax.config.files import load_config
from vrl_jax.engine.placement import Placement
from vrl_jax.errors import UserError
from vrl_jax.tools import communication
from vrl_jax.training.experiment import make_experiment

DIMENSION, PERIOD = 9, 5
VECTOR = 4 * DIMENSION
# The number of vectors that a worker sends in every step and at the end of a round.
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
  return communication.count_communication(_config(name))


def test_every_algorithm_is_in_the_table():
  assert VECTORS.keys() == vrl_jax.ALGORITHMS.keys()


@pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
def test_the_compiled_program_agrees_with_the_formula(name):
  per_step, per_round = VECTORS[name]
  one = _account(name)
  assert one.compiled == one.formula == (PERIOD * per_step + per_round) * VECTOR
  assert sum(c.bytes for c in one.in_steps) == per_step * VECTOR
  where = one.overlapping if name == 'cocod_sgd' else one.after_steps
  assert sum(c.bytes for c in where) == sum(c.bytes for c in one.overlapping + one.after_steps) == per_round * VECTOR


@pytest.mark.parametrize('name', ['vrl_sgd', 'd2'])
def test_one_worker_per_device(name):
  one = communication.count_communication(_config(name, devices=8))
  assert (one.compiled, one.formula) == (_account(name).compiled, _account(name).formula)


@pytest.mark.parametrize('name', ['d2', 'extra'])
def test_a_ring_of_two_has_one_neighbour(name):
  one = communication.count_communication(_config(name, workers=2))
  assert one.compiled == one.formula == one.sent == PERIOD * VECTOR


def test_averaged_buffers_and_partial_participation():
  mean = communication.count_communication(_config('vrl_sgd', momentum=0.9, buffers='mean'))
  assert mean.compiled == mean.formula == 2 * VECTOR
  half = communication.count_communication(_config('scaffold', participation=0.5))
  assert half.compiled == half.formula == 2 * VECTOR  # all workers run the program, with a mask ...
  assert half.sent == round(2 * 7 / 8 * 2 * VECTOR / 2)  # ... but only half of them send


def test_one_device_is_refused():
  with pytest.raises(UserError, match='workers=8 on one device'):
    communication.count_communication(_config('vrl_sgd', devices=1))


def test_the_tool(capsys):
  flags = ['--config.dimension=9', '--config.algorithm=scaffold', '--config.devices=2', '--config.period=5']
  assert communication.main(['--config', 'quadratic', *flags]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == '72 B of parameters, rounds of 5 steps'  # float64
  assert lines[2].split() == 'SCAFFOLD – – 1 all-reduce, 144 B 144 B 144 B 144 B'.split()
  assert communication.main(['--config', 'nowhere']) == 2
  assert 'nowhere' in capsys.readouterr().err
  assert jax.config.jax_enable_x64 is False


def test_all_covers_the_registry(monkeypatch, capsys):
  monkeypatch.setattr(
    communication, 'count_communication', lambda config: _account('vrl_sgd')._replace(algorithm=config.algorithm)
  )
  assert communication.main(['--config', 'quadratic', '--config.devices=2', '--all', '--config.alpha=0.2']) == 0
  assert len(capsys.readouterr().out.splitlines()) == 2 + len(vrl_jax.ALGORITHMS)


ISLANDS = """HloModule jit_f, num_partitions=8

%step (p: (f32[4])) -> (f32[4]) {
  %p = (f32[4]) parameter(0)
  %w = f32[4] get-tuple-element(%p), index=0
  %g = f32[4] all-reduce(%w), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%add
  ROOT %t = (f32[4]) tuple(%g)
}

%round (q: (f32[4])) -> (f32[4]) {
  %q = (f32[4]) parameter(0)
  %while = (f32[4]) while(%q), condition=%cond, body=%step
  %y = f32[4] get-tuple-element(%while), index=0
  %m = f32[4] all-reduce(%y), channel_id=2, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=%add
  ROOT %t = (f32[4]) tuple(%m)
}

ENTRY %main (x: (f32[4])) -> (f32[4]) {
  %x = (f32[4]) parameter(0)
  ROOT %rounds = (f32[4]) while(%x), condition=%cond, body=%round
}
"""


def test_what_stays_inside_an_island(tmp_path):
  config = _config('vrl_sgd', workers=2)
  experiment = make_experiment(config, tmp_path)
  program = types.SimpleNamespace(as_text=lambda: ISLANDS)

  def read(size, mode='sharded'):
    placement = Placement(tuple(jax.devices()), 1, size, mode)
    return communication.read_round(config, experiment._replace(placement=placement), PERIOD, program)

  one = read(4)
  assert one.in_steps == one.overlapping == one.inside_rounds == []
  assert ([c.bytes for c in one.inside_steps], [c.bytes for c in one.after_steps]) == ([16], [16])
  assert (one.sent_inside, one.sent_between, one.compiled) == (PERIOD * 24, 16, 16)
  assert (one.formula, read(4, 'replicated').formula) == (VECTOR, VECTOR)  # 4 devices do not divide 9 numbers
  assert 'every step: 1 all-reduce, 16 B; after: –; a device sends 120 B' in communication.table([one, read(1)])
  apart = read(1)
  assert apart.inside == [] and [c.bytes for c in apart.in_steps] == [16]
  assert 'inside an island' not in communication.table([apart])


# Fragments, delays and bits, alone and together.

WAYS = [dict(fragments=4), dict(delay=3), dict(bits=16), dict(bits=8), dict(fragments=4, delay=2, bits=4)]
EVERY_WAY = [
  {name: value for name, value in zip(('fragments', 'delay', 'bits'), values) if value != off[name]}
  for off in [{'fragments': 1, 'delay': 0, 'bits': 32}]
  for values in itertools.product((1, 4), (0, 2), (32, 16, 8, 4))
]
OTHERS = [way for way in EVERY_WAY if way and way not in WAYS]


@pytest.mark.parametrize('way', [*WAYS, *(pytest.param(way, marks=pytest.mark.slow) for way in OTHERS)], ids=str)
def test_fragments_delays_and_bits_in_the_compiled_program(way):
  """A segment of one step is no loop, so periods are long enough for several steps between two communications."""
  dimension, devices = 4096, 8 if way.get('bits') in (8, 16) else 2
  one = communication.count_communication(_config('vrl_sgd', devices, dimension=dimension, period=16, **way))
  fragments, bits = way.get('fragments', 1), way.get('bits', 32)
  vector = 4 * dimension
  found, others = one.after_steps, one.overlapping
  if 'delay' in way:
    found, others = others, found
  assert others == one.in_steps == []
  if bits == 32:
    assert [c.bytes for c in found] == [vector // fragments] * fragments
    assert one.compiled == one.formula == vector
    assert one.sent == 2 * 7 / 8 * vector
    return
  blocks = -(-dimension // fragments // 8 // 256)  # per shard
  scales = 0 if bits == 16 else 4 * 8 * fragments * blocks
  encoded = vector * bits // 32 + scales
  assert [c.op for c in found].count('all-to-all') == [c.op for c in found].count('all-gather') == fragments
  assert one.sent == 2 * 7 / 8 * encoded
  each = 8 // devices  # several workers on a device send their encodings separately
  assert one.compiled == one.formula == (each + 1) / 2 * encoded
  assert sum(c.bytes for c in found if c.op == 'all-to-all') == each * encoded


@pytest.mark.parametrize('name', ['scaffold', 'vrl_adaptive', 'diloco', 'slowmo', 'local_sgd'])
def test_the_relatives_send_so_too(name):
  one = communication.count_communication(_config(name, 8, dimension=4096, period=16, fragments=2, delay=2, bits=8))
  assert one.after_steps == one.in_steps == []
  assert one.compiled == one.formula == VECTORS[name][1] * (4096 + 4 * 16)
