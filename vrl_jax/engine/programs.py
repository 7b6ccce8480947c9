"""The compiled programs of the engine: k local steps in a scan, then the communication, for all workers at once.

A program is a pmap over the devices, or islands, of a vmap over the workers of each. The functions here are those of one
worker.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.axes import AXES, AXIS
from vrl_jax.cpu.tiled_updates import tile_updates
from vrl_jax.cpu.worker_order import group_workers, serialize_workers
from vrl_jax.engine.batch_stats import communicate_stats
from vrl_jax.engine.placement import Placement
from vrl_jax.engine.program import Program
from vrl_jax.engine.round_metrics import round_metrics
from vrl_jax.engine.state import Model, WorkerState, make_consensus


def make_programs(
  algorithm: Algorithm,
  loss: Callable[..., Any],
  placement: Placement,
  fetch: Callable[[Any, Any], Any],
  *,
  seed: int = 0,
  workers_at_once: int | None = None,
  tile_bytes: int | None = None,
  batch_stats: str | None = None,
) -> dict[str, Program]:
  """Makes the programs of an engine; see :class:`vrl_jax.Engine` for the arguments.

  Returns:
    'run', 'measure' and 'trace', called with `(state, data, frozen, items)` ('run' also with the number of rounds), and
    'consensus', called with `(params, opt_state, batch_stats)`.

  >>> import vrl_jax
  >>> from vrl_jax.engine.placement import place_workers
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.5), axis_name=AXES)
  >>> loss = lambda x, frozen, target, rng: (x - target) ** 2 / 2
  >>> run = make_programs(algorithm, loss, place_workers(workers=2, devices=1), lambda data, item: item)['run']
  >>> x = jnp.zeros((1, 2))  # one device with two workers
  >>> opt_state = jax.vmap(jax.vmap(algorithm.transform.init))(x)
  >>> state = WorkerState(x, opt_state, step=jnp.zeros((1, 2), int), loss_sum=jnp.zeros((1, 2)))
  >>> targets = jnp.array([[[[1.0]], [[3.0]]]])  # one round of one step
  >>> state, _ = run(state, None, (), targets, jnp.array([1]))
  >>> state.params.tolist()  # 0.5 and 1.5, averaged
  [[1.0, 1.0]]
  """
  options: dict[str, Any] = {
    'seed': seed,
    'workers_at_once': workers_at_once,
    'tile_bytes': tile_bytes,
    'batch_stats': batch_stats,
  }
  step, period = local_steps(algorithm, loss, placement, fetch, **options)
  parts, consensus = _parts(algorithm, batch_stats, placement), make_consensus(algorithm, batch_stats)

  def mapped(worker, *in_axes, lead=1):
    workers = jax.vmap(worker, in_axes, axis_name=AXIS)

    def on_device(state, *args):
      state, out = workers(placement.constrain(state, lead=1), *args)
      return placement.constrain(state, lead=1), placement.constrain(out, lead)

    return placement.pmap(on_device, donate_argnums=0)

  one_model = _first_of(jax.vmap(consensus, axis_name=AXIS))
  return {
    'run': mapped(_run(period, parts), 0, None, None, 0, None),
    'measure': mapped(_measure(algorithm, step, parts), 0, None, None, 0),
    'trace': mapped(_trace(algorithm, step, parts, consensus), 0, None, None, 0, lead=2),  # workers, steps
    'consensus': placement.pmap(lambda *state: placement.constrain(one_model(*state))),
  }


def local_steps(
  algorithm: Algorithm,
  loss: Callable[..., Any],
  placement: Placement,
  fetch: Callable[[Any, Any], Any],
  *,
  seed: int = 0,
  workers_at_once: int | None = None,
  tile_bytes: int | None = None,
  batch_stats: str | None = None,
) -> tuple[Callable[..., Any], Callable[..., WorkerState]]:
  """The local steps of one worker; see `make_programs` for the arguments.

  Returns:
    `(state, data, frozen, worker, item) -> (state, v_i)`, one step of worker i and its direction; and
    `(state, data, frozen, worker, items) -> state`, a step for each of the items.

  >>> import vrl_jax
  >>> from vrl_jax.engine.placement import place_workers
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.5), axis_name=AXES)
  >>> loss = lambda x, frozen, target, rng: (x - target) ** 2 / 2
  >>> step, period = local_steps(algorithm, loss, place_workers(workers=1, devices=1), lambda data, item: item)
  >>> state = WorkerState(jnp.zeros(()), algorithm.transform.init(jnp.zeros(())), jnp.zeros((), int), jnp.zeros(()))
  >>> period(state, None, (), 0, jnp.array([1.0, 1.0])).params.item()
  0.75
  """
  gradient = jax.value_and_grad(loss if batch_stats else _without_stats(loss), has_aux=True)
  # The order of workers and tiles are for a CPU device that computes alone.
  platform = placement.platform if placement.devices_per_island == 1 else 'several devices'
  if batch_stats != 'sync':  # whose gradient needs all workers at the same time
    gradient = group_workers(gradient, platform, workers_at_once)
  step = _local_step(algorithm, gradient, fetch, seed, placement)
  new_state = lambda *args: step(*args)[0]
  period = serialize_workers(
    _scanned(new_state),
    platform,
    workers_at_once,
    single_worker_period=_scanned(tile_updates(new_state, tile_bytes)),
  )
  return step, period


def _without_stats(loss):
  return lambda *args: (loss(*args), ())


def _first_of(fun):
  """Runs `fun`, whose results are equal on all workers, and keeps the first worker's."""
  return lambda *args: jax.tree.map(lambda x: x[0], fun(*args))


def _local_step(algorithm, value_and_grad, fetch, seed, placement):
  """`(state, data, frozen, worker, item) -> (state, v_i)`: one step of worker i, and its direction."""

  def step(state, data, frozen, worker, item):
    rng = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), state.step), worker)
    batch = placement.constrain_batch(fetch(data, item))
    constants = Model(state.params, state.batch_stats).constants(frozen)
    (value, stats), grads = value_and_grad(state.params, constants, batch, rng)
    grads = placement.constrain(grads)
    correction = algorithm.correction(state.opt_state)
    direction = grads if correction is None else jax.tree.map(lambda g, c: g.astype(c.dtype) - c, grads, correction)
    updates, opt_state = algorithm.transform.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    loss_sum = state.loss_sum + value.astype(state.loss_sum.dtype)
    return placement.constrain((WorkerState(params, opt_state, state.step + 1, loss_sum, stats), direction))

  return step


def _scanned(step):
  """A step for each of `items`."""

  def period(state, data, frozen, worker, items):
    return lax.scan(lambda state, item: (step(state, data, frozen, worker, item), None), state, items)[0]

  return period


def _parts(algorithm, policy, placement):
  """`(items of a round) -> [(items, communicate)]`: the local steps up to each communication, mostly all of them."""

  def parts(items):
    length = jax.tree.leaves(items)[0].shape[0]
    plan = dict(algorithm.communications(length))
    plan.setdefault(length, lambda params, opt_state: (params, opt_state))
    starts = [0, *plan]
    return [
      (_slice(items, start, end, length), _communicate(function, policy if end == length else None, placement))
      for start, (end, function) in zip(starts, plan.items())
    ]

  return parts


def _slice(items, start, end, length):
  return items if (start, end) == (0, length) else jax.tree.map(lambda x: x[start:end], items)


def _communicate(function, policy, placement):
  def communicate(state):
    params, opt_state = function(state.params, state.opt_state)
    stats = communicate_stats(policy, state.batch_stats, AXES)
    return placement.constrain(state._replace(params=params, opt_state=opt_state, batch_stats=stats))

  return communicate


def _run(period, parts):
  def run(state, data, frozen, items, rounds):
    def one_round(r, state):
      for some, communicate in parts(jax.tree.map(lambda x: x[r], items)):
        state = communicate(period(state, data, frozen, lax.axis_index(AXES), some))
      return state

    # The number of rounds is an operand: however rounds are grouped, the program and the bits are the same.
    state = lax.fori_loop(0, rounds, one_round, state)
    return state, state.step

  return run


def _measure(algorithm, step, parts):
  def measure(state, data, frozen, items):
    def body(carry, item):
      return step(carry[0], data, frozen, worker, item), None

    worker = lax.axis_index(AXES)
    zeros = jax.eval_shape(lambda: step(state, data, frozen, worker, jax.tree.map(lambda x: x[0, 0], items))[1])
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), zeros)
    *before, (last, communicate) = parts(jax.tree.map(lambda x: x[0], items))
    for some, communicate_inside in before:
      state = communicate_inside(lax.scan(body, (state, zeros), some)[0][0])
    (state, direction), _ = lax.scan(body, (state, zeros), last)
    metrics = round_metrics(algorithm, state, direction)
    state = communicate(state)
    return state._replace(loss_sum=jnp.zeros_like(state.loss_sum)), metrics

  return measure


def _trace(algorithm, step, parts, consensus):
  def trace(state, data, frozen, items):
    def body(state, item):
      state, direction = step(state, data, frozen, lax.axis_index(AXES), item)
      metrics = round_metrics(algorithm, state, direction)
      state = state._replace(loss_sum=jnp.zeros_like(state.loss_sum))
      return state, (metrics, consensus(state.params, state.opt_state, state.batch_stats))

    traced = []
    for some, communicate in parts(jax.tree.map(lambda x: x[0], items)):
      state, (metrics, models) = lax.scan(body, state, some)
      state = communicate(state)
      last = consensus(state.params, state.opt_state, state.batch_stats)
      traced.append((metrics, jax.tree.map(lambda steps, x: steps.at[-1].set(x), models, last)))
    return state, traced[0] if len(traced) == 1 else jax.tree.map(lambda *xs: jnp.concatenate(xs), *traced)

  return trace
