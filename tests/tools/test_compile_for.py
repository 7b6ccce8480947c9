"""Rounds compiled for devices that are not attached send what the formula says, at the place where they should."""

import functools
import os

import jax
import pytest

import vrl_jax
from vrl_jax.accounting.hlo import Collective
from vrl_jax.accounting.topologies import Topology, find_topology, install_command
from vrl_jax.config.files import load_config
from vrl_jax.errors import UserError
from vrl_jax.tools import compile_for
from vrl_jax.tools.communication import RoundCommunication, with_algorithm

WORKERS = 8
AT_EVERY_STEP = ('s_sgd', 'd2', 'extra')
DATA = os.environ.get('VRL_JAX_DATA')


def quadratic(workers=WORKERS):
  config = load_config('quadratic')
  config.update(a=(), c=(), dimension=100, x64=False, workers=workers)
  return config


def config_of(task):
  if task == 'quadratic':
    return quadratic()
  config = load_config(task)
  config.workers = WORKERS
  if task == 'lenet_mnist':
    config.dataset = 'mnist_5k'
  elif DATA is None:
    pytest.skip('VRL_JAX_DATA is not set')
  else:
    config.data_dir = DATA
  return config


def check(name, one):
  sent = one.communication
  assert one.fits and one.idle == 0
  assert sent.compiled == sent.formula > 0
  if name in AT_EVERY_STEP:
    assert sent.in_steps and not sent.overlapping + sent.after_steps
  elif name == 'cocod_sgd':
    assert sent.overlapping and not sent.in_steps + sent.after_steps
  else:
    assert sent.after_steps and not sent.in_steps + sent.overlapping


def attached(count):
  return Topology('attached', tuple(jax.devices()[:count]), memory=1 << 30, compiler_options={})


@pytest.mark.parametrize('name', ['s_sgd', 'vrl_sgd', 'cocod_sgd', 'd2'])
def test_the_rounds_of_attached_devices(name):
  """What the slow test below does, with the compiler that is always there."""
  one = compile_for.compile_round(with_algorithm(quadratic(), name), attached(8))
  check(name, one)
  assert one.devices == '8 cpu' and one.peak > 400


def test_few_bits():
  config = quadratic()
  config.update(dimension=4096, bits=8)
  one = compile_for.compile_round(config, attached(4)).communication  # two workers on each device
  assert one.compiled == one.formula > 4096


@pytest.mark.parametrize('mode', ['replicated', 'sharded'])
def test_islands(mode):
  config = load_config('examples/transformer.py')
  config.update(workers=2, blocks=1, devices_per_worker=4, island=mode)
  one = compile_for.compile_round(config, attached(8))
  check('vrl_sgd', one)
  assert one.communication.compiled == one.communication.parameters // (4 if mode == 'sharded' else 1)
  assert one.communication.inside_steps and one.communication.sent_inside > one.communication.sent_between
  assert f'2 workers on 8 cpu in islands of 4 ({mode}), a round of' in compile_for.report(config, one)


def test_devices_that_do_not_divide_the_workers_are_idle():
  one = compile_for.compile_round(quadratic(workers=6), attached(4))
  assert (one.devices, one.idle) == ('3 cpu', 1)
  assert '6 workers on 3 cpu (1 idle)' in compile_for.report(quadratic(workers=6), one)


def test_a_device_that_is_too_small():
  one = compile_for.compile_round(quadratic(), attached(8)._replace(memory=100))
  assert not one.fits
  assert ' of 100 B: too much' in compile_for.report(quadratic(), one)


def test_a_compiler_that_runs_out_of_memory(monkeypatch):
  monkeypatch.setattr(compile_for, '_compile', lambda lowered, topology: (None, None))
  one = compile_for.compile_round(quadratic(), attached(8))
  assert not one.fits
  assert compile_for.report(quadratic(), one).endswith('needs more memory than a device has, 1.07 GB')
  assert 'more than 1.07 GB' in compile_for.table([(quadratic(), one)])


def test_an_estimate_that_the_compiler_does_not_have(monkeypatch):
  """libtpu's is -1 for several slices, and -2 for TPU7x."""
  compiled = compile_for._compile

  class Program:
    def __init__(self, program):
      self.as_text, self.memory_analysis = program.as_text, program.memory_analysis

    def cost_analysis(self):
      return {'flops': 7.0, 'optimal_seconds': -2.0}

  monkeypatch.setattr(compile_for, '_compile', lambda *args: (Program(compiled(*args)[0]), None))
  one = compile_for.compile_round(quadratic(), attached(8))
  assert (one.flops, one.estimate) == (7.0, None)


def test_the_report_of_islands():
  groups = ((0, 1, 2, 3), (4, 5, 6, 7))
  in_step = Collective('all-gather', 1000, 2, False, groups=groups)
  at_end = Collective('all-reduce', 200, 1, True, groups=groups)
  mean = Collective('all-reduce', 4000, 1, True, groups=((0, 4), (1, 5), (2, 6), (3, 7)))
  sent = RoundCommunication('vrl_sgd', 20, 16000, [], [], [mean], 16000, 8000, 8, inside=[in_step, at_end])
  assert (sent.sent_inside, sent.sent_between, sent.compiled) == (20 * 3000 + 300, 4000, 4000)
  one = compile_for.CompiledRound('v5e:2x4', '8 TPU v5 lite', 0, sent, 10, 100, None, None, 1.0)
  lines = compile_for.report(quadratic(2), one).splitlines()
  assert [line.split(':', 1)[1].strip() for line in lines[3:-1]] == [
    '1 all-reduce, 4 kB',
    '1 all-gather, 1 kB',
    '1 all-reduce, 200 B',
    '60.3 kB inside its island, 4 kB to others',
  ]


def test_the_command(monkeypatch, capsys):
  monkeypatch.setattr(compile_for, 'find_topology', lambda name: attached(8))
  assert compile_for.main(['--config', 'quadratic', '--config.a=()', '--config.c=()', '--topology', 'v5e:2x4']) == 0
  out = capsys.readouterr().out
  assert out.startswith('attached: quadratic, VRL-SGD, 8 workers on 8 cpu, a round of 20 steps, compiled in ')
  assert 'after the steps:            1 all-reduce, 8 B\n' in out


def test_bad_command_lines(capsys):
  assert compile_for.main(['--topology', 'v5e:2x4']) == 2
  assert capsys.readouterr().err.startswith('error: --config is missing')
  assert compile_for.main(['--config', 'quadratic', '--topology', 'v5e']) == 2
  assert capsys.readouterr().err.startswith("error: topology='v5e', must be ")


@functools.cache
def topology_of(name):
  if command := install_command(name):
    pytest.skip(f'the compiler of {name} is not installed: {command}')
  if name.startswith('h100') and jax.config.jax_platforms != 'cpu':
    pytest.skip('JAX has looked for a GPU: run the tests with JAX_PLATFORMS=cpu')
  return find_topology(name)


@pytest.mark.slow
@pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
@pytest.mark.parametrize('task', ['quadratic', 'lenet_mnist', 'textcnn_dbpedia', 'mlp_tiny_imagenet'])
@pytest.mark.parametrize('topology', ['h100:8', 'v5e:2x4'])
def test_every_algorithm_on_every_task(topology, task, name):
  topology = topology_of(topology)
  one = compile_for.compile_round(with_algorithm(config_of(task), name), topology)
  check(name, one)
  assert all(c.during_loop for c in one.communication.overlapping) or topology.name != 'h100:8'


@pytest.mark.slow
@pytest.mark.parametrize(('topology', 'size'), [('h100:8', 4), ('v5e:2x4', 4), ('v5e:2x4*2', 8)])
def test_islands_of_accelerators(topology, size):
  """Of the model, each device sends its part to other islands; between TPU slices it is a transfer of its own kind."""
  config = load_config('examples/transformer.py')
  config.update(workers=2, blocks=1, devices_per_worker=size, island='sharded')
  sent = compile_for.compile_round(config, topology_of(topology)).communication
  assert sent.inside and not sent.in_steps + sent.overlapping
  assert {c.op for c in sent.after_steps} == {'send' if '*' in topology else 'all-reduce'}
  assert sent.parameters / size <= sent.compiled <= 1.1 * sent.parameters / size + 4096


@pytest.mark.slow
def test_a_topology_that_the_compiler_refuses():
  topology_of('v5e:2x4')
  with pytest.raises(UserError, match="topology='v5e:3x7': .*not divisible"):
    find_topology('v5e:3x7')
