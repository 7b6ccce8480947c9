"""Islands: the trajectory of one device per worker, what their devices hold, and what leaves them."""

import functools
import pathlib
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import islands
from support.algorithms import every_kind

import vrl_jax
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Supply
from vrl_jax.engine.placement import first_copy, place_workers
from vrl_jax.models.mlp import MLP

LAYOUTS = [(2, 1), (4, 2), (8, 2), (4, 4), (8, 4), (8, 8)]  # D·M, M


@functools.cache
def without_islands(name):
  with jax.enable_x64(True):
    return islands.trajectory(name, 2, 1)


def assert_same_trajectory(name, devices, size, mode):
  with jax.enable_x64(True):
    found = islands.trajectory(name, devices, size, mode)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, without_islands(name))
  assert found[1]['consensus_distance'] > 1e-3 or name == 's_sgd'


@pytest.mark.parametrize(('devices', 'size', 'mode'), [(8, 2, 'sharded'), (4, 4, 'sharded'), (8, 4, 'replicated')])
def test_the_trajectory_is_that_of_one_device_per_worker(devices, size, mode):
  assert_same_trajectory('vrl_sgd', devices, size, mode)


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize('mode', ['replicated', 'sharded'])
@pytest.mark.parametrize(('devices', 'size'), LAYOUTS)
def test_every_algorithm_has_the_trajectory_on_all_islands(name, devices, size, mode):
  assert_same_trajectory(name, devices, size, mode)


@pytest.mark.slow
@pytest.mark.parametrize('options', [{'workers_at_once': 2}, {'workers_at_once': 1, 'tile_bytes': 64}])
def test_the_choices_of_a_cpu_are_right_on_islands(options):
  with jax.enable_x64(True):
    models = []
    for devices, size, more in ((2, 1, {}), (8, 4, options)):
      engine = islands.make_engine('vrl_sgd', devices, size, **more)
      state, _ = engine.run(engine.init(islands.start()), islands.items(engine, 2), 2)
      models.append(first_copy(engine.consensus(state).params))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), *models)


@pytest.mark.slow
@pytest.mark.parametrize(('devices', 'size', 'mode'), [(8, 4, 'sharded'), (4, 4, 'sharded'), (8, 2, 'replicated')])
def test_fragments_delay_and_few_bits(devices, size, mode):
  assert_same_trajectory('vrl_sgd less', devices, size, mode)


def test_an_island_of_one_device_is_the_device_bit_by_bit():
  """It is the same program, of `jax.pmap`."""
  engines = [islands.make_engine('vrl_sgd', 4, size, 'replicated') for size in (1, None)]
  texts = []
  for engine in engines:
    state, items = engine.init(islands.start()), islands.items(engine, 1)
    texts.append(engine.lower('run', state, items, engine.placement.replicate(np.int32(1))).as_text())
    assert engine.placement.mesh.axis_names == ('devices',)
  assert texts[0] == texts[1]


@pytest.mark.parametrize(('devices', 'size'), [(8, 4), pytest.param(4, 4, marks=pytest.mark.slow)])
def test_the_state_stays_divided_and_is_donated(devices, size):
  engine = islands.make_engine('vrl_sgd', devices, size)
  state = engine.init(islands.start())
  shapes = engine.state_shapes(islands.start())
  for program in ('run', 'measure', 'trace'):
    more = (1,) if program == 'run' else ()
    new, _ = getattr(engine, program)(state, islands.items(engine, 1), *more)
    assert all(x.is_deleted() for x in jax.tree.leaves(state))
    state = new
    for x, shape in zip(jax.tree.leaves(state), jax.tree.leaves(shapes), strict=True):
      assert (x.shape, x.dtype) == (shape.shape, shape.dtype)
      assert x.sharding.is_equivalent_to(shape.sharding, x.ndim)
  held = lambda x: x.addressable_shards[0].data.size / (x.size / engine.placement.islands)
  assert jax.tree.map(held, state.params) == {'bias': 1 / size, 'in': 1 / size, 'odd': 1, 'out': 1 / size, 'scale': 1}
  model = engine.consensus(state)
  assert first_copy(model.params)['in'].shape == (4, 8)
  assert model.params['in'].addressable_shards[0].data.shape == (1, 4, 8 // size)


def test_the_mini_batch_is_divided_over_the_island():
  engine = islands.make_engine('vrl_sgd', 8, 4)
  items = islands.items(engine, 1)
  assert items['x'].addressable_shards[0].data.shape == (1, 4, 1, islands.PERIOD, islands.BATCH // 4, 4)
  program = engine.lower('measure', engine.init(islands.start()), items).compile()
  assert f'f32[4,{islands.BATCH // 4},{islands.WIDTH}]' in program.as_text()  # of the hidden layer of four workers
  assert f'f32[4,{islands.BATCH},{islands.WIDTH}]' not in program.as_text()


def test_an_evaluation_does_not_depend_on_the_mesh():
  """A chunk of 3 examples is padded to be divided over four devices."""
  from vrl_jax.engine.evaluation import eval_parts, make_evaluator

  data = {'c': np.arange(11, dtype=np.float32)}
  metrics = lambda x, frozen, batch: {'loss': jnp.square(x['w'][0] - batch['c'])}
  for size in (1, 2, 4):
    placement = place_workers(8, 2 * size, devices_per_worker=size, island='sharded')
    evaluate = make_evaluator(metrics, placement)
    model = placement.copy_model({'w': np.full(4, 2.0, np.float32)})
    assert evaluate(model, (), eval_parts(data, placement, chunk=3)) == {'loss': np.mean(np.square(data['c'] - 2))}


EXAMPLE = runpy.run_path(str(pathlib.Path(__file__).parents[2] / 'examples' / 'islands.py'))


def transformer():
  """The loss, the shapes of the parameters, and of a batch of all workers' tokens."""
  shapes = jax.eval_shape(EXAMPLE['init'], jax.random.key(0))
  return lambda params, frozen, tokens, rng: EXAMPLE['loss'](params, tokens), shapes, ((8, 17), jnp.int32)


def mlp():
  model = MLP(num_classes=200)
  shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 2048)))
  loss = lambda params, frozen, x, rng: jnp.mean(jnp.square(model.apply(params, x)))
  return loss, shapes, ((8, 2048), jnp.float32)


@functools.cache
def compiled(make, size, mode):
  """The compiled round of two islands, the bytes of its items on a device, and the shapes of the model."""
  loss, shapes, (batch, dtype) = make()
  placement = place_workers(2, 2 * size, devices_per_worker=size, island=mode)
  algorithm = vrl_jax.vrl_sgd(optax.sgd(0.1, momentum=0.9))
  engine = Engine(algorithm, loss, placement, Supply(None, lambda data, item: item))
  shape = (2, 1, 1, 3, *batch)
  items = jax.ShapeDtypeStruct(shape, dtype, sharding=placement.batch_sharding(shape))
  rounds = jax.ShapeDtypeStruct((2,), jnp.int32, sharding=placement.sharding)
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    program = engine.lower('run', engine.state_shapes(shapes), items, rounds).compile()
  return program, items.size * dtype.dtype.itemsize // (2 * size), shapes


@pytest.mark.parametrize(
  ('make', 'size'),
  [(transformer, 4), (mlp, 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((transformer, 2), (mlp, 4)))],
)
def test_a_sharded_island_holds_and_sends_a_part_per_device(make, size):
  (whole, items, shapes), (part, _, _) = (compiled(make, size, mode) for mode in ('replicated', 'sharded'))
  state = lambda program: program.memory_analysis().argument_size_in_bytes - items
  model = sum(4 * x.size for x in jax.tree.leaves(shapes))
  assert state(whole) >= 3 * model  # parameters, momentum, Δ
  assert state(part) <= (1 / size + 0.1) * state(whole)
  between = {}
  for program, divisor in ((whole, 1), (part, size)):
    found = islands.collectives(program.as_text(), size)
    leaving = [(kind, sent) for kind, sent, leaves in found if leaves]
    assert {kind for kind, _ in leaving} == {'all-reduce'}
    between[divisor] = sum(sent for _, sent in leaving)
    assert len(found) > len(leaving)  # the gradients, inside
  assert between[1] == model
  assert between[size] == model // size
