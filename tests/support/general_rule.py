"""Algorithms that send in fragments, with a delay and with few bits: their trajectories, and those of NumPy."""

import functools
import itertools

import jax
import numpy as np
import optax
import pytest
from support import general_reference, quadratics
from support import numpy_reference as reference
from support.general_reference import Sending

import vrl_jax
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.placement import place_workers

PROBLEM = reference.heterogeneous(dimension=37)
X0 = np.linspace(-1.0, 2.0, 37)
LENGTHS = [1, 8, 8, 5, 2, 8]
COMBINATIONS = [
  Sending(fragments, delay, bits, block=4)
  for fragments, delay, bits in itertools.product((1, 4), (0, 2), (32, 16, 8, 4))
  if (fragments, delay, bits) != (1, 0, 32)
]
SHORT = {(4, 0, 32), (1, 2, 32), (1, 0, 16), (1, 0, 8), (4, 2, 4)}
every_combination = pytest.mark.parametrize(
  'sending',
  [pytest.param(s, marks=() if s[:3] in SHORT else pytest.mark.slow, id=f'{s[0]}-{s[1]}-{s[2]}') for s in COMBINATIONS],
)
ALL = Sending(fragments=4, delay=2, bits=4, block=4)
BETA, ALPHA = 0.5, 0.7


def rate(t):
  return 0.03 / (1 + 0.1 * float(t))


def falling(momentum=0.0):
  return optax.sgd(lambda count: 0.03 / (1 + 0.1 * count.astype(float)), momentum=momentum or None)


@functools.cache
def plain(name, inner=None, axis_name='w'):
  options = {'diloco': {'outer_learning_rate': ALPHA, 'outer_momentum': BETA}, 'slowmo': {'slow_momentum': BETA}}
  return vrl_jax.ALGORITHMS[name](inner or falling(), axis_name=axis_name, **options.get(name, {}))


def send(algorithm, sending):
  algorithm = vrl_jax.streaming(algorithm, sending.fragments)
  algorithm = vrl_jax.overlapped(algorithm, sending.delay)
  return vrl_jax.quantised(algorithm, sending.bits, block=sending.block, error_feedback=sending.error_feedback)


def to_tree(flat):
  """[..., 37] as a tree whose leaves the fragments cut."""
  matrix = flat[..., :24].reshape(*flat.shape[:-1], 4, 6)
  return {'layer': {'matrix': matrix, 'vector': flat[..., 24:36]}, 'scalar': flat[..., 36]}


def make_engine(algorithm, problem=PROBLEM, devices=2):
  placement = place_workers(len(problem.a), devices)
  supply = quadratics.own_data(placement, {'a': problem.a, 'c': to_tree(problem.c)})
  return Engine(algorithm, quadratics.loss, placement, supply)


def run_engine(algorithm, lengths, problem=PROBLEM, devices=2, x0=X0):
  """[rounds, N, 37] models after every round, and the last state."""
  engine = make_engine(algorithm, problem, devices)
  state = engine.init(to_tree(x0))
  models = []
  for length in lengths:
    state, _ = engine.run(state, quadratics.items(engine, length), 1)
    models.append(quadratics.worker_models(state))
  return np.stack(models), state


def nesterov(memory, ref, mean, response):
  del response
  memory = BETA * memory - mean
  return ref - ALPHA * (-mean + BETA * memory), memory


def slow_momentum(memory, ref, mean, response):
  memory = BETA * memory - mean / response
  return ref - response * memory, memory


SERVERS = {'diloco': nesterov, 'slowmo': slow_momentum}


def expected(name, sending, lengths, *, momentum=0.0, x0=X0, problem=PROBLEM, rate=rate):
  kind, server = ('local_sgd', SERVERS[name]) if name in SERVERS else (name, None)
  return general_reference.run(problem, rate, lengths, x0, sending, kind=kind, momentum=momentum, server=server)


def trajectory(algorithm, steps, period=8, first_period=1, problem=PROBLEM, x0=X0):
  """[T, N, 37] models and corrections of `as_optax` under vmap."""
  tx = vrl_jax.as_optax(algorithm, period, first_period)

  def loop(params, batch):
    def step(carry, _):
      params, state = carry
      updates, state = tx.update(jax.grad(quadratics.loss)(params, (), batch, None), state, params)
      params = optax.apply_updates(params, updates)
      correction = algorithm.correction(state.algorithm)
      return (params, state), (params, params if correction is None else correction)

    return jax.lax.scan(step, (params, tx.init(params)), None, length=steps)[1]

  mapped = jax.jit(jax.vmap(loop, axis_name='w', out_axes=1))
  batch = {'a': problem.a, 'c': to_tree(problem.c)}
  return tuple(quadratics.to_flat(tree, lead=2) for tree in mapped(quadratics.replicate(to_tree(x0)), batch))


def check(name, sending, inner=None, momentum=0.0, lengths=(1, 8, 8, 8), **kwargs):
  models, corrections = trajectory(send(plain(name, inner or falling(momentum)), sending), sum(lengths), **kwargs)
  wanted, delta = expected(name, sending, lengths, momentum=momentum)
  np.testing.assert_allclose(models, wanted, atol=1e-10)
  if name not in ('local_sgd', *SERVERS):
    np.testing.assert_allclose(corrections[-1], delta, atol=1e-10)
    assert np.abs(corrections.sum(axis=1)).max() < 1e-12
