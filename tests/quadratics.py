"""Runs an algorithm on the quadratics of numpy_reference: by hand under vmap, and with the engine.

The model is a nested tree, so that every comparison also covers trees; flat vectors [..., 7] are the reference's view.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vrl_jax import rounds
from vrl_jax.arrangement import arrange

WORKERS, DIMENSION = 8, 7


def to_tree(flat):
  """[..., 7] as a nested tree."""
  matrix = flat[..., :4].reshape(*flat.shape[:-1], 2, 2)
  return {'layer': {'matrix': matrix, 'vector': flat[..., 4:6]}, 'scalar': flat[..., 6]}


def to_flat(tree, lead=1):
  """The tree's leaves as [..., 7] NumPy; `lead` axes stand before the model's own."""
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


def by_hand(algorithm, axis='w', *, value_and_grad=jax.value_and_grad(loss)):
  """`(step, communicate, consensus)` of all workers, jitted, under plain vmap."""

  def step(params, state, batch):
    _, grads = value_and_grad(params, (), batch, None)
    updates, state = algorithm.update(grads, state, params)
    return optax.apply_updates(params, updates), state

  return tuple(jax.jit(jax.vmap(f, axis_name=axis)) for f in (step, algorithm.communicate, algorithm.consensus))


def replicate(params, workers=WORKERS):
  return jax.tree.map(lambda x: jnp.stack([x] * workers), params)


def run_by_hand(functions, algorithm, problem, lengths, x0):
  """[T, N, 7] models and [T, N, 7] consensus models after every step, and the last state."""
  step, communicate, consensus = functions
  params = replicate(start(x0))
  state = jax.vmap(algorithm.init)(params)
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


def make_engine(algorithm, problem, *, devices, dtype=np.float64, loss=loss, seed=0, **choices):
  """An engine whose every step takes the worker's whole (a_i, c_i)."""
  arrangement = arrange(len(problem.a), devices)
  supply = own_data(arrangement, batches(problem, dtype))
  return rounds.Engine(algorithm, loss, arrangement, supply, seed=seed, **choices)


def own_data(arrangement, data):
  """A supply of leaves [N, ...]: every step takes all that is its worker's; its items are `places`."""
  return rounds.Supply(arrangement.split(data), lambda data, place: jax.tree.map(lambda x: x[place], data))


def places(arrangement, count, length):
  """[N, count, length], the place of each worker on its device."""
  of_workers = np.arange(arrangement.workers, dtype=np.int32) % arrangement.workers_per_device
  return np.broadcast_to(of_workers[:, None, None], (arrangement.workers, count, length))


def items(engine, length, count=1):
  return engine.arrangement.split(places(engine.arrangement, count, length))


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
