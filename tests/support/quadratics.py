"""Runs an algorithm on the quadratics of numpy_reference, under vmap and in the engine.

The model is a nested tree, so that every comparison covers trees too; the reference uses flat vectors [..., 7].
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Supply
from vrl_jax.engine.placement import place_workers

WORKERS, DIMENSION = 8, 7


def to_tree(flat):
  """[..., 7] as a nested tree."""
  matrix = flat[..., :4].reshape(*flat.shape[:-1], 2, 2)
  return {'layer': {'matrix': matrix, 'vector': flat[..., 4:6]}, 'scalar': flat[..., 6]}


def to_flat(tree, lead=1):
  """The tree's leaves as a NumPy array [..., 7]; `lead` is the number of leading axes (time, workers)."""
  leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(tree)]
  return np.concatenate([x.reshape(*x.shape[:lead], -1) for x in leaves], axis=-1)


def loss(params, frozen, batch, rng):
  del frozen, rng
  squares = jax.tree.map(lambda x, c: jnp.sum(jnp.square(x - c)), params, batch['c'])
  return batch['a'] * sum(jax.tree.leaves(squares))


def batches(problem, dtype=np.float64):
  return {'a': problem.a.astype(dtype), 'c': to_tree(problem.c.astype(dtype))}


def start(x0, dtype=np.float64):
  return to_tree(np.asarray(x0, dtype))


@functools.lru_cache(maxsize=32)
def vmapped(algorithm):
  """`(step, communicate, consensus)` of all workers under vmap over the axis 'w', jitted."""

  def step(params, state, batch):
    grads = jax.grad(loss)(params, (), batch, None)
    updates, state = algorithm.transform.update(grads, state, params)
    return optax.apply_updates(params, updates), state

  return tuple(jax.jit(jax.vmap(f, axis_name='w')) for f in (step, algorithm.communicate, algorithm.consensus))


def replicate(params, workers=WORKERS):
  return jax.tree.map(lambda x: jnp.stack([x] * workers), params)


def run_vmapped(algorithm, problem, lengths, x0):
  """[T, N, 7] models and [T, N, 7] consensus models after every step, and the last state."""
  step, communicate, consensus = vmapped(algorithm)
  params = replicate(start(x0))
  state = jax.vmap(algorithm.transform.init)(params)
  batch = batches(problem)
  models, evaluated = [], []
  for length in lengths:
    for place in range(length):
      params, state = step(params, state, batch)
      if place == length - 1:
        params, state = communicate(params, state)
      models.append(to_flat(params))
      evaluated.append(to_flat(consensus(params, state)))
  return np.stack(models), np.stack(evaluated), state


def training_loop(tx, steps, *, change=lambda step, state: state, grads_at=lambda step, grads: grads):
  """`(params, batch) -> [T, ...] models`: one worker's loop with an optax transform.

  Args:
    tx: the transform.
    steps: T.
    change: `(step, state) -> state`, called before every step.
    grads_at: `(step, grads) -> grads`, called before every update.
  """

  def loop(params, batch):
    def step(carry, number):
      params, state = carry
      state = change(number, state)
      grads = grads_at(number, jax.grad(loss)(params, (), batch, None))
      updates, state = tx.update(grads, state, params)
      params = optax.apply_updates(params, updates)
      return (params, state), params

    return jax.lax.scan(step, (params, tx.init(params)), jnp.arange(steps))[1]

  return loop


def under_vmap(loop):
  """All workers' loops on one device."""
  return jax.jit(jax.vmap(loop, axis_name='w'))


def under_pmap(loop):
  """One worker's loop per device."""
  return jax.pmap(loop, axis_name='w')


def under_shard_map(loop):
  """One worker's loop per device, with varying axes checked."""

  def device(params, batch):
    one = jax.tree.map(lambda x: x[0], (params, batch))
    return jax.tree.map(lambda x: x[None], loop(*one))

  mesh = jax.make_mesh((WORKERS,), ('w',), axis_types=(jax.sharding.AxisType.Auto,))
  spec = jax.sharding.PartitionSpec('w')
  return jax.jit(jax.shard_map(device, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=True))


def run_loops(mapped, problem, x0):
  """[T, N, 7] models of the loops that `under_vmap` and the like return."""
  models = mapped(replicate(start(x0)), batches(problem))
  return np.swapaxes(to_flat(models, lead=2), 0, 1)


def make_engine(algorithm, problem, *, devices, dtype=np.float64, loss=loss, seed=0, **choices):
  """An engine in which every step of worker i gets (a_i, c_i)."""
  placement = place_workers(len(problem.a), devices)
  supply = own_data(placement, batches(problem, dtype))
  return Engine(algorithm, loss, placement, supply, seed=seed, **choices)


def own_data(placement, data):
  """A supply of leaves [N, ...]: every step of worker i gets the i-th slice; its items are `places`."""
  return Supply(placement.split(data), lambda data, place: jax.tree.map(lambda x: x[place], data))


def places(placement, count, length):
  """[N, count, length], the index of each worker on its device."""
  of_workers = np.arange(placement.workers, dtype=np.int32) % placement.workers_per_device
  return np.broadcast_to(of_workers[:, None, None], (placement.workers, count, length))


def items(engine, length, count=1):
  return engine.placement.split(places(engine.placement, count, length))


def worker_models(state, lead=2):
  """[N, 7] of a WorkerState."""
  flat = to_flat(state.params, lead)
  return flat.reshape(-1, flat.shape[-1])


def run_engine(engine, lengths, x0, dtype=np.float64):
  """[rounds, N, 7] models after every round, and the last state."""
  state = engine.init(start(x0, dtype))
  models = []
  for length in lengths:
    state, _ = engine.run(state, items(engine, length), 1)
    models.append(worker_models(state))
  return np.stack(models), state
