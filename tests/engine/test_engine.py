"""The engine: donation, compilation, rounds per dispatch, metrics, random numbers."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import numpy_reference as reference
from support import quadratics
from support.algorithms import every_kind

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.placement import first_copy, place_workers

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
RATE = 0.03


@contextlib.contextmanager
def _compilations():
  """A list that grows by one with every compilation by XLA."""
  events = []

  def listen(event, duration, **kwargs):
    if event == '/jax/core/compile/backend_compile_duration':
      events.append(kwargs)

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield events
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def _engine(name, devices=2, dtype=np.float32, inner=None, **options):
  algorithm = vrl_jax.ALGORITHMS[name](inner or optax.sgd(RATE, momentum=0.5), axis_name=AXES)
  return quadratics.make_engine(algorithm, PROBLEM, devices=devices, dtype=dtype, **options)


def _begin(engine, dtype=np.float32):
  return engine.init(quadratics.start(X0, dtype))


def _equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


@functools.cache
def _shared_engine(name):
  return _engine(name)


@every_kind
def test_run_donates_the_state_and_compiles_once(name):
  engine = _shared_engine(name)
  state = _begin(engine)
  work = [quadratics.items(engine, 3, count=4) for _ in range(4)]
  with _compilations() as events:
    new, _ = engine.run(state, work[0], 4)
    first = len(events)
    for count, items in zip((4, 1, 3), work[1:]):
      assert all(x.is_deleted() for x in jax.tree.leaves(state))
      assert not any(x.is_deleted() for x in jax.tree.leaves(new))
      before, state = _pointers(new), new
      new, _ = engine.run(state, items, count)
      assert sorted(_pointers(new)) == sorted(before)
    assert first >= 1
    assert len(events) == first
  engine.consensus(new)
  assert not any(x.is_deleted() for x in jax.tree.leaves(new))


def _pointers(state):
  return [x.addressable_shards[0].data.unsafe_buffer_pointer() for x in jax.tree.leaves(state)]


@pytest.mark.parametrize('devices', [8, 1])
def test_every_program_donates_on_any_number_of_devices(devices):
  engine = _engine('vrl_sgd', devices)
  state = _begin(engine)
  for program in ('run', 'measure', 'trace'):
    more = (1,) if program == 'run' else ()
    new, _ = getattr(engine, program)(state, quadratics.items(engine, 3), *more)
    assert all(x.is_deleted() for x in jax.tree.leaves(state))
    state = new


def test_another_period_is_another_program():
  engine = _shared_engine('vrl_sgd')
  short = quadratics.items(engine, 2)
  state = _begin(engine)
  with _compilations() as events:
    engine.run(state, short, 1)
  assert events


def test_compile_seconds_are_counted_once():
  engine = _engine('vrl_sgd')
  state = _begin(engine)
  assert engine.compile_seconds == 0
  state, _ = engine.run(state, quadratics.items(engine, 3), 1)
  seconds = engine.compile_seconds
  assert seconds > 0
  state, _ = engine.run(state, quadratics.items(engine, 3), 1)
  assert engine.compile_seconds == seconds
  engine.measure(state, quadratics.items(engine, 3))
  assert engine.compile_seconds > seconds


@pytest.mark.parametrize('name', ['s_sgd', 'vrl_sgd'])
def test_the_number_of_rounds_per_dispatch_does_not_change_a_bit(name):
  placement = place_workers(8, 2)
  noise = np.random.default_rng(0).normal(size=(8, 5, 3, quadratics.DIMENSION)).astype(np.float32)

  def noisy(params, frozen, batch, rng):
    data, shift = batch
    value = quadratics.loss(params, frozen, data, rng)
    return value + sum(jax.tree.leaves(jax.tree.map(lambda x, s: jnp.vdot(x, s), params, quadratics.to_tree(shift))))

  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(RATE, momentum=0.5), axis_name=AXES)
  exact = quadratics.own_data(placement, quadratics.batches(PROBLEM, np.float32))
  supply = exact._replace(fetch=lambda data, item: (exact.fetch(data, item[0]), item[1]))
  engine = Engine(algorithm, noisy, placement, supply)
  places = quadratics.places(placement, *noise.shape[1:3])

  def run(groups):
    state, done = _begin(engine), 0
    for count in groups:
      padded = np.concatenate([noise[:, done:], np.full_like(noise[:, :done], np.nan)], axis=1)  # NaN is never read
      state, _ = engine.run(state, placement.split((places, padded)), count)
      done += count
    return jax.tree.map(np.asarray, state)

  together = run([5])
  assert int(together.step[0, 0]) == 15
  _equal(run([1] * 5), together)
  _equal(run([2, 3]), together)


@pytest.mark.parametrize('workers_at_once', [1, 3])  # with 3, the 4 workers of a device are a group and a remainder
def test_workers_at_once_does_not_change_the_trajectory(workers_at_once):
  engines = [_engine('vrl_sgd', **options) for options in ({}, {'workers_at_once': workers_at_once})]
  states = [engine.run(_begin(engine), quadratics.items(engine, 7), 1)[0] for engine in engines]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), *states)


def test_zero_rounds_change_nothing():
  engine = _engine('vrl_sgd')
  before = jax.tree.map(np.array, _begin(engine))
  state, _ = engine.run(_begin(engine), quadratics.items(engine, 3, count=2), 0)
  _equal(before, state)


@every_kind
def test_measure_and_trace_have_the_trajectory_of_run(name):
  engine = _shared_engine(name)
  plain, measured = _begin(engine), _begin(engine)
  plain, _ = engine.run(plain, quadratics.items(engine, 3, count=4), 4)
  for program in ('measure', 'trace', 'measure', 'trace'):
    measured, _ = getattr(engine, program)(measured, quadratics.items(engine, 3))
  for a, b in zip(jax.tree.leaves(plain[:3]), jax.tree.leaves(measured[:3])):
    np.testing.assert_allclose(a, b, atol=1e-5)


def _variance(x):
  return ((x - x.mean(axis=0)) ** 2).sum(axis=1).mean()


def _expected_scalars(step):
  return {
    'consensus_distance': _variance(step.local),
    'variance_among_workers': _variance(step.direction),
    'correction_norm': np.sqrt((step.delta**2).sum(axis=1).mean()),
  }


NAMES = ['s_sgd', 'local_sgd', 'easgd', 'vrl_sgd']


@pytest.mark.parametrize('name', NAMES)
def test_metrics_of_measure_against_numpy(name):
  devices = 4
  with jax.enable_x64(True):
    engine = _engine(name, devices, np.float64, optax.sgd(RATE))
    state = _begin(engine, np.float64)
    state, _ = engine.run(state, quadratics.items(engine, 4, count=2), 2)
    state, third = engine.measure(state, quadratics.items(engine, 4))
    state, fourth = engine.measure(state, quadratics.items(engine, 4))
    assert third['loss_sum'].shape == (devices, 8 // devices)
    steps = reference.run(name, PROBLEM, reference.SGD(lambda t: RATE), [4] * 4, X0)
    losses = [step.loss.mean() for step in steps]
    for scalars, last, loss_sum in ((third, 11, sum(losses[:12])), (fourth, 15, sum(losses[12:]))):
      expected = _expected_scalars(steps[last]) | {'loss_sum': loss_sum}
      assert scalars.keys() == expected.keys()
      for key, value in expected.items():
        np.testing.assert_allclose(scalars[key], np.full((devices, 8 // devices), value), atol=1e-11, err_msg=key)
    np.testing.assert_array_equal(state.loss_sum, 0)


@pytest.mark.parametrize('name', NAMES)
def test_metrics_of_trace_against_numpy(name):
  with jax.enable_x64(True):
    engine = _engine(name, 2, np.float64, optax.sgd(RATE))
    state = _begin(engine, np.float64)
    steps = reference.run(name, PROBLEM, reference.SGD(lambda t: RATE), [4, 4, 3], X0)
    done = 0
    for length in (4, 4, 3):
      state, (scalars, models) = engine.trace(state, quadratics.items(engine, length))
      scalars = jax.tree.map(lambda x: x[0], first_copy(scalars))
      models = quadratics.to_flat(models, lead=3)
      for place, step in enumerate(steps[done : done + length]):
        for key, value in (_expected_scalars(step) | {'loss_sum': step.loss.mean()}).items():
          np.testing.assert_allclose(scalars[key][place], value, atol=1e-11, err_msg=key)
        everywhere = np.broadcast_to(step.consensus, (2, 4, quadratics.DIMENSION))
        np.testing.assert_allclose(models[:, :, place], everywhere, atol=1e-11)
      done += length


def test_metrics_of_bfloat16_params_are_accurate():
  algorithm = vrl_jax.local_sgd(optax.sgd(RATE), axis_name=AXES)
  problem = PROBLEM._replace(c=100 + 0.3 * PROBLEM.c)
  engine = quadratics.make_engine(algorithm, problem, devices=2, dtype=jnp.bfloat16)

  def before_communication():
    without_communication = algorithm._replace(communicate=lambda params, state: (params, state))
    engine = quadratics.make_engine(without_communication, problem, devices=2, dtype=jnp.bfloat16)
    state, _ = engine.run(engine.init(quadratics.start(90 * np.ones(7), jnp.bfloat16)), quadratics.items(engine, 3), 1)
    return quadratics.worker_models(state)

  state = engine.init(quadratics.start(90 * np.ones(7), jnp.bfloat16))
  _, scalars = engine.measure(state, quadratics.items(engine, 3))
  expected = _variance(before_communication())
  assert expected > 0.1
  np.testing.assert_allclose(np.asarray(scalars['consensus_distance'])[0, 0], expected, rtol=1e-3)


# Random numbers.


@functools.cache
def _noise(seed=0, devices=2, steps=4):
  """[steps, N]: the random number of each worker at each step."""

  def loss(params, frozen, batch, rng):
    return jax.random.uniform(rng) * params['scalar']

  solo = vrl_jax.Algorithm(
    transform=optax.with_extra_args_support(optax.sgd(1.0)),
    communicate=lambda params, state: (params, state),
    consensus=lambda params, state: params,
    correction=lambda state: None,
  )
  engine = quadratics.make_engine(solo, PROBLEM, devices=devices, dtype=np.float32, loss=loss, seed=seed)
  state = engine.init(quadratics.start(np.zeros(7), np.float32))
  values = [np.zeros(8)]
  for _ in range(steps):
    state, _ = engine.run(state, quadratics.items(engine, 1), 1)
    values.append(quadratics.worker_models(state)[:, -1])
  return -np.diff(values, axis=0)


def test_rng_differs_for_every_worker_and_step():
  assert len(np.unique(np.round(_noise(), 5))) == _noise().size


def test_rng_follows_the_seed():
  assert np.abs(_noise(seed=0) - _noise(seed=4)).min() > 0


def test_rng_is_reproducible_on_any_number_of_devices():
  for devices in (8, 1):
    np.testing.assert_allclose(_noise(devices=devices), _noise(devices=2), atol=1e-6)
