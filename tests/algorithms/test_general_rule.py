"""Streaming, overlap and quantisation, alone and together, against NumPy and against what must hold exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import general_reference, quadratics
from support.general_reference import Sending
from support.general_rule import (
  ALL,
  ALPHA,
  BETA,
  LENGTHS,
  PROBLEM,
  X0,
  check,
  every_combination,
  expected,
  falling,
  make_engine,
  nesterov,
  plain,
  rate,
  run_engine,
  send,
  to_tree,
  trajectory,
)
from support.quadratics import training_loop, under_pmap, under_shard_map

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.periods import stagewise

pytestmark = pytest.mark.usefixtures('x64')


# Against NumPy, and to the optimum.


@every_combination
def test_vrl_sgd_equals_numpy_and_reaches_the_optimum_and_its_corrections_sum_to_zero(sending):
  models, corrections = trajectory(send(plain('vrl_sgd', optax.sgd(0.03)), sending), 2500)
  wanted, _ = expected('vrl_sgd', sending, [1, 8, 8, 8], rate=lambda t: 0.03)
  np.testing.assert_allclose(models[:25], wanted, atol=1e-10)
  np.testing.assert_allclose(models[-1], np.tile(PROBLEM.optimum, (8, 1)), atol=1e-12)
  assert np.abs(corrections.sum(axis=1)).max() < 1e-12


@pytest.mark.parametrize(
  'sending', [Sending(fragments=4), Sending(delay=3), Sending(bits=16), Sending(bits=8, block=4), ALL], ids=str
)
def test_local_sgd_equals_numpy(sending):
  check('local_sgd', sending)


@pytest.mark.parametrize('name', ['scaffold', 'vrl_adaptive'])
def test_the_relatives_with_a_correction_equal_numpy_and_reach_the_optimum(name):
  models, corrections = trajectory(send(plain(name, optax.sgd(0.03)), ALL), 2500)
  wanted, _ = expected(name, ALL, [1, 8, 8, 8], rate=lambda t: 0.03)
  np.testing.assert_allclose(models[:25], wanted, atol=1e-10)
  np.testing.assert_allclose(models[-1], np.tile(PROBLEM.optimum, (8, 1)), atol=1e-12)
  assert np.abs(corrections.sum(axis=1)).max() < 1e-12


@pytest.mark.parametrize('name', ['diloco', 'slowmo'])
@pytest.mark.parametrize('sending', [Sending(delay=3), ALL], ids=str)
def test_outer_optimizers_equal_numpy(name, sending):
  check(name, sending)


@pytest.mark.parametrize(
  ('name', 'sending'), [('vrl_sgd', Sending(delay=3)), ('vrl_sgd', ALL), ('scaffold', Sending(fragments=4))], ids=str
)
def test_momentum_inside_equals_numpy(name, sending):
  check(name, sending, momentum=0.6)


def test_momentum_inside_reaches_the_optimum():
  models, corrections = trajectory(send(plain('vrl_sgd', optax.sgd(0.003, momentum=0.9)), ALL), 4000)
  np.testing.assert_allclose(models[-1], np.tile(PROBLEM.optimum, (8, 1)), atol=1e-12)
  assert np.abs(corrections.sum(axis=1)).max() < 1e-11


@pytest.mark.parametrize('bits', [16, 4])
def test_without_error_feedback_it_equals_numpy(bits):
  check('vrl_sgd', Sending(bits=bits, block=6, error_feedback=False))


def test_with_a_nonlinear_optimizer_inside():
  inner = optax.chain(optax.scale_by_rms(), optax.sgd(optax.exponential_decay(0.03, 300, 0.8)))
  models, corrections = trajectory(send(plain('vrl_adaptive', inner), ALL), 6000)
  np.testing.assert_allclose(models[-1].mean(axis=0), PROBLEM.optimum, atol=1e-3)
  assert np.abs(corrections.sum(axis=1)).max() < 1e-12
  models, _ = trajectory(send(plain('local_sgd', inner), ALL), 6000)
  assert np.abs(models[-1].mean(axis=0) - PROBLEM.optimum).max() > 0.01


def test_local_sgd_stops_elsewhere():
  models, _ = trajectory(send(plain('local_sgd', optax.sgd(0.03)), ALL), 2500)
  assert np.abs(models[-1].mean(axis=0) - PROBLEM.optimum).max() > 0.01


def test_in_momentum_delta_is_a_weighted_mean_of_the_gradients():
  """U is the response of the inner optimizer to all earlier Δs: then constant gradients give Δ_i = g_i − ḡ at once."""
  gradients = jnp.array([[1.0, 1.0], [3.0, 3.0], [8.0, 8.0]])
  algorithm = send(plain('vrl_sgd', optax.sgd(0.1, momentum=0.9)), Sending(fragments=2, delay=1))
  params = jnp.zeros((3, 2))
  state = jax.vmap(algorithm.transform.init)(params)
  seen = []
  for _ in range(6):
    for step in range(1, 5):
      updates, state = jax.vmap(algorithm.transform.update)(gradients, state, params)
      params = params + updates
      if function := dict(algorithm.communications(4)).get(step):
        params, state = jax.vmap(function, axis_name='w')(params, state)
    seen.append(algorithm.correction(state))
  for delta in seen[2:]:
    np.testing.assert_allclose(delta, gradients - 4.0, atol=1e-12)


# Off, and special cases.


@pytest.mark.parametrize(
  'name', ['vrl_sgd', 'local_sgd', 'scaffold', 'vrl_adaptive', 'diloco', 'slowmo', 'easgd', 's_sgd']
)
def test_off_is_the_algorithm_itself(name):
  algorithm = plain(name)
  off = send(algorithm, Sending())
  assert off._replace(exchange=None) == algorithm._replace(exchange=None)
  if algorithm.exchange:
    on_and_off = send(send(algorithm, ALL), Sending())
    assert on_and_off._replace(exchange=None) == algorithm._replace(exchange=None)
    assert send(on_and_off, ALL).plan(8)[0][0] == send(algorithm, ALL).plan(8)[0][0]


def test_the_order_of_the_combinators_makes_no_difference():
  one = vrl_jax.streaming(vrl_jax.overlapped(vrl_jax.quantised(plain('vrl_sgd'), 4), 2), 4)
  other = vrl_jax.quantised(vrl_jax.streaming(vrl_jax.overlapped(plain('vrl_sgd'), 2), 4), 4)
  np.testing.assert_array_equal(trajectory(one, 17), trajectory(other, 17))


def test_a_delay_of_a_period_is_cocod_sgd():
  models, _ = trajectory(vrl_jax.overlapped(plain('local_sgd'), 8), 25)
  np.testing.assert_allclose(models, trajectory(plain('cocod_sgd'), 25)[0], atol=1e-13)


@pytest.mark.parametrize('name', ['vrl_sgd', 'local_sgd', 'scaffold', 'vrl_adaptive', 'diloco', 'slowmo'])
def test_fragments_that_are_sent_together_are_the_algorithm_itself(name):
  models, _ = trajectory(vrl_jax.streaming(plain(name), 4), 12, period=1)
  np.testing.assert_allclose(models, trajectory(plain(name), 12, period=1)[0], atol=1e-12)


# Any loop, any devices.


@pytest.mark.parametrize(('name', 'sending'), [('vrl_sgd', ALL), ('scaffold', Sending(bits=4, block=4))], ids=str)
def test_the_same_trajectory_on_any_number_of_devices_and_the_same_bits_on_all_workers(name, sending):
  wanted, _ = trajectory(send(plain(name, falling(0.6)), sending), 18, period=6, first_period=None)
  for devices in (8, 2, 1):
    models, state = run_engine(send(plain(name, falling(0.6), axis_name=AXES), sending), [6] * 3, devices=devices)
    np.testing.assert_allclose(models, wanted[5::6], atol=1e-11)
    agreed = quadratics.to_flat(state.opt_state.agreed, lead=2).reshape(8, -1)
    np.testing.assert_array_equal(agreed, np.broadcast_to(agreed[:1], agreed.shape))


def test_rounds_of_different_lengths_in_the_engine():
  models, state = run_engine(send(plain('vrl_sgd', axis_name=AXES), ALL), LENGTHS)
  wanted, delta = expected('vrl_sgd', ALL, LENGTHS)
  np.testing.assert_allclose(models, wanted[np.cumsum(LENGTHS) - 1], atol=1e-10)
  np.testing.assert_allclose(
    quadratics.to_flat(state.opt_state.correction[0], lead=2).reshape(8, -1), delta, atol=1e-10
  )


@pytest.mark.parametrize('mapped', [under_shard_map, under_pmap])
def test_as_optax_under_other_maps(mapped):
  algorithm = send(plain('vrl_sgd', falling(0.6)), ALL)
  loop = mapped(training_loop(vrl_jax.as_optax(algorithm, 8, first_period=1), 17))
  looped = loop(quadratics.replicate(to_tree(X0)), {'a': PROBLEM.a, 'c': to_tree(PROBLEM.c)})
  looped = np.swapaxes(quadratics.to_flat(looped, lead=2), 0, 1)
  np.testing.assert_allclose(looped, trajectory(algorithm, 17)[0], atol=1e-11)


def test_as_optax_with_stages():
  lengths = [3, 3, 6, 12]
  check('vrl_sgd', ALL, lengths=lengths, period=stagewise(3, (6, 12)), first_period=None)


def test_a_checkpoint_of_a_transfer_under_way_is_exact():
  algorithm = send(plain('vrl_sgd', falling(0.6), axis_name=AXES), ALL)
  engine = make_engine(algorithm, devices=2)
  items = quadratics.items(engine, 6)
  state, _ = engine.run(engine.init(to_tree(X0)), items, 1)
  in_transfer = state.opt_state.transfer
  assert np.any(quadratics.worker_models(state) != quadratics.to_flat(in_transfer.start, lead=2).reshape(8, -1))
  stored = jax.tree.map(lambda x: np.array(x).reshape(8, *x.shape[2:]), state)
  for _ in range(2):
    state, _ = engine.run(state, items, 1)
  resumed = engine.placement.split(stored)
  for _ in range(2):
    resumed, _ = engine.run(resumed, items, 1)
  jax.tree.map(np.testing.assert_array_equal, resumed, state)


@pytest.mark.slow
def test_precede_keeps_the_plan():
  doubled = vrl_jax.precede(optax.scale(2.0), send(plain('vrl_sgd'), ALL))
  models, _ = trajectory(doubled, 17)
  wanted, _ = trajectory(send(plain('vrl_sgd'), ALL), 17, problem=PROBLEM._replace(a=2 * PROBLEM.a))
  np.testing.assert_allclose(models, wanted, atol=1e-11)


@pytest.mark.slow
def test_an_outer_optimizer_around_vrl_sgd():
  outer = vrl_jax.with_outer_optimizer(plain('vrl_sgd'), optax.sgd(ALPHA, momentum=BETA, nesterov=True))
  wanted, _ = general_reference.run(PROBLEM, rate, [1, 8, 8], X0, ALL, kind='vrl_sgd', server=nesterov)
  np.testing.assert_allclose(trajectory(send(outer, ALL), 17)[0], wanted, atol=1e-10)


def test_leaves_without_a_correction_are_those_of_local_sgd():
  algorithm = vrl_jax.vrl_sgd(
    falling(), corrected={'layer': {'matrix': True, 'vector': False}, 'scalar': False}, axis_name='w'
  )
  sending = Sending(fragments=4, delay=2)
  models, _ = trajectory(send(algorithm, sending), 25)  # every number of this problem is a problem of its own
  with_delta, _ = expected('vrl_sgd', sending, [1, 8, 8, 8])
  without, _ = expected('local_sgd', sending, [1, 8, 8, 8])
  np.testing.assert_allclose(models[..., :24], with_delta[..., :24], atol=1e-11)
  np.testing.assert_allclose(models[..., 24:], without[..., 24:], atol=1e-11)
  assert np.abs(with_delta - without)[..., 24:].max() > 1e-3


@pytest.mark.parametrize('dtype', [np.float32, jnp.bfloat16])
@pytest.mark.parametrize('name', ['vrl_sgd', 'scaffold', 'vrl_adaptive', 'diloco', 'slowmo'])
def test_params_and_states_keep_shapes_and_dtypes(name, dtype):
  algorithm = send(plain(name, optax.sgd(0.03, momentum=0.5)), ALL)
  params = quadratics.replicate(jax.tree.map(lambda x: jnp.asarray(x, dtype), to_tree(X0)))
  state = jax.vmap(algorithm.transform.init)(params)
  shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  step = lambda g, s, x: algorithm.transform.update(g, s, x)
  updates, stepped = jax.eval_shape(jax.vmap(step), params, state, params)
  assert shapes(stepped) == shapes(state)
  assert shapes(updates) == shapes(params)
  for _, function in algorithm.communications(8):
    assert shapes(jax.eval_shape(jax.vmap(function, axis_name='w'), params, state)) == shapes((params, state))
