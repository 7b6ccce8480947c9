"""The order of the workers changes neither a trajectory nor random numbers."""

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
from vrl_jax.cpu import worker_order
from vrl_jax.cpu.worker_order import vmap_in_groups
from vrl_jax.data.partition import by_class
from vrl_jax.data.stream import index_stream
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Feed
from vrl_jax.engine.placement import place_workers

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
RATE = 0.03


def _engine(name, devices, **options):
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(RATE, momentum=0.5), axis_name=AXES)
  return quadratics.make_engine(algorithm, PROBLEM, devices=devices, dtype=np.float32, **options)


@pytest.mark.parametrize('devices', [2, 8])
@every_kind
def test_workers_of_a_large_model_run_serially_unless_their_steps_communicate(name, devices, monkeypatch):
  parallel = _engine(name, devices, workers_at_once=8)
  monkeypatch.setattr(worker_order, '_LARGE_MODEL', 0)
  serial = _engine(name, devices)
  states, texts = [], []
  for engine in (parallel, serial):
    state, items = engine.init(quadratics.start(X0, np.float32)), quadratics.items(engine, 3, count=2)
    texts.append(engine.lower('run', state, items, engine.placement.replicate(np.int32(2))).as_text())
    states.append(engine.run(state, items, 2)[0])
  writes_back = ['dynamic_update_slice' in text for text in texts]  # the state of a worker, after its period
  assert writes_back == [False, name not in ('s_sgd', 'd2', 'extra')]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6), *states)


def test_serial_workers_copy_neither_their_data_nor_state_that_does_not_change():
  workers, examples, inputs, outputs = 8, 1024, 1024, 512
  model = 4 * inputs * outputs
  placement = place_workers(workers, 2)
  data = np.zeros((workers, examples, inputs), np.float32)  # of each worker: twice the size of a model
  feed = Feed(data.reshape(-1, inputs), index_stream(by_class(np.repeat(range(8), examples), 8), 4), placement)
  loss = lambda params, frozen, batch, rng: jnp.mean(jnp.square(batch @ params))
  engine = Engine(vrl_jax.vrl_sgd(optax.sgd(RATE), axis_name=AXES), loss, placement, feed.supply)
  state = engine.init(np.zeros((inputs, outputs), np.float32))
  lowered = engine.lower('run', state, feed.items(0, 3, 1), placement.replicate(np.int32(1)))
  program = lowered.compile()
  copies = [
    line for line in program.as_text().splitlines() if f' = f32[4,{inputs},{outputs}]' in line and ' copy(' in line
  ]
  assert len(copies) == 1  # of x, once per round: it is needed for Δ after its mean is known
  # That copy of four models, and one worker's x and Δ; a copy of its data would be 2 more.
  assert program.memory_analysis().temp_size_in_bytes < 6.5 * model


def test_vmap_in_groups_is_vmap():
  """Random keys, batched and unbatched arguments."""
  keys, batched, shared = jax.random.split(jax.random.key(0), 7), jnp.arange(7.0), jnp.arange(3.0)

  def fun(key, tree, shared):
    return {'noise': jax.random.normal(key, (3,)) + tree['x'] * shared}

  expected = jax.vmap(fun, (0, 0, None))(keys, {'x': batched}, shared)
  grouped = jax.jit(jax.vmap(vmap_in_groups(fun, 3), (0, 0, None)))(keys, {'x': batched}, shared)
  np.testing.assert_allclose(grouped['noise'], expected['noise'], rtol=1e-6)
