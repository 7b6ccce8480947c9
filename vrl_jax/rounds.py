"""The round: k local steps in a scan, then the communication, for all workers at once, as one compiled program.

N workers run on D devices as a pmap over D of a vmap over N/D, with both axes in the algorithm's `axis_name`, so the
trajectory does not depend on D. Arrays of a run have the leading axes [D, N/D]. The period is the length of the items'
step axis; the algorithm never sees it.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from vrl_jax.algorithms.base import AXIS, Algorithm, widened
from vrl_jax.arrangement import DEVICE_AXIS, Arrangement

AXES = (DEVICE_AXIS, AXIS)
"""The `axis_name` of an algorithm that runs in this engine."""


class WorkerState(NamedTuple):
  """What a worker carries from step to step; leaves have the leading axes [D, N/D].

  Attributes:
    params: x_i.
    opt_state: the state of the algorithm's transform.
    step: int32, the number of steps taken.
    loss_sum: the sum of the mini-batch losses since it was last measured.
  """

  params: Any
  opt_state: Any
  step: jax.Array
  loss_sum: jax.Array


class Supply(NamedTuple):
  """Where mini-batches come from.

  Attributes:
    data: what lives on the devices, [D, N/D, ...], or [D, ...] if `shared`.
    shared: whether the workers of a device share `data`.
    fetch: `(data, item) -> batch`: what a step makes of its item (indices into `data`, or the batch itself).
    frozen: constants of the model such as an embedding table, [D, ...].
  """

  data: Any
  shared: bool
  fetch: Callable[[Any, Any], Any]
  frozen: Any = ()


class Engine:
  """Runs rounds of one algorithm on one loss.

  Items, a pytree with leaves [D, N/D, rounds, k, ...], are what the steps fetch their batches with. A program is
  compiled once for each shape of them, donates the state and returns a new one.
  """

  def __init__(self, algorithm: Algorithm, loss: Callable, arrangement: Arrangement, supply: Supply, *, seed: int = 0):
    """Builds the engine.

    Args:
      algorithm: an algorithm made with `axis_name=rounds.AXES`.
      loss: `(params, frozen, batch, rng) -> scalar`, the mean over one worker's mini-batch.
      arrangement: the workers and their devices.
      supply: where mini-batches come from.
      seed: of the `rng` that `loss` gets, another one for each worker and step.
    """
    self.arrangement = arrangement
    self.compile_seconds = 0.0
    self._algorithm = algorithm
    self._supply = supply
    self._compiled = {}
    step = _local_step(algorithm, loss, supply.fetch, seed)
    axes = (0, None if supply.shared else 0, None, 0)
    programs = {
      'run': (_run(algorithm, step), (*axes, None)),
      'measure': (_measure(algorithm, step), axes),
      'trace': (_trace(algorithm, step), axes),
    }
    self._programs = {
      name: arrangement.pmap(jax.vmap(worker, in_axes, axis_name=AXIS), donate_argnums=0)
      for name, (worker, in_axes) in programs.items()
    }
    self._consensus = arrangement.pmap(_one_of_equals(jax.vmap(algorithm.consensus, axis_name=AXIS)))

  def init(self, params: Any) -> WorkerState:
    """The state at the start: every worker has `params`, a tree without worker axes."""

    def worker(params):
      loss_sum = jnp.zeros([], jnp.result_type(float))
      return WorkerState(params, self._algorithm.init(params), jnp.zeros([], jnp.int32), loss_sum)

    start = jax.vmap(worker, in_axes=None, axis_size=self.arrangement.workers_per_device)
    return self.arrangement.pmap(start)(self.arrangement.replicate(params))

  def run(self, state: WorkerState, items: Any, rounds: int) -> tuple[WorkerState, jax.Array]:
    """Runs the first `rounds` rounds of `items` in one dispatch, with no collective but the algorithm's own.

    Returns:
      The new state, and a small array to wait for (the state itself is donated to the next call).
    """
    return self._dispatch('run', state, items, self.arrangement.replicate(np.int32(rounds)))

  def measure(self, state: WorkerState, items: Any) -> tuple[WorkerState, dict[str, jax.Array]]:
    """Runs the one round of `items` and measures it after its last local step, before the communication.

    Returns:
      The new state and scalars as [D, N/D] equal copies: `loss_sum` (mean over the workers of the losses since the last
      measurement), `consensus_distance` (1/N)Σ‖x_i − x̂‖², `variance_among_workers` (1/N)Σ‖v_i − v̄‖² of the directions
      v_i = g_i − Δ_i, `correction_norm` ((1/N)Σ‖Δ_i‖²)^½.
    """
    return self._dispatch('measure', state, items)

  def trace(self, state: WorkerState, items: Any) -> tuple[WorkerState, tuple[dict[str, jax.Array], Any]]:
    """Runs the one round of `items` and measures every local step; for small models, as it communicates in each.

    Returns:
      The new state; the scalars of `measure` with a last axis k; the consensus models with an axis k.
    """
    return self._dispatch('trace', state, items)

  def consensus(self, state: WorkerState) -> Any:
    """The model to evaluate, a copy per device: leaves [D, ...]."""
    return self._consensus(state.params, state.opt_state)

  def lower(self, program: str, state: WorkerState, items: Any, *more: Any) -> jax.stages.Lowered:
    """The lowered program 'run', 'measure' or 'trace', to compile or to look into."""
    return self._programs[program].lower(state, self._supply.data, self._supply.frozen, items, *more)

  def compile(self, program: str, state: WorkerState, items: Any, *more: Any) -> jax.stages.Compiled:
    """The compiled program for these shapes, compiled at most once; its time adds to `compile_seconds`."""
    key = (program, *(x.shape for x in jax.tree.leaves(items)))
    if key not in self._compiled:
      start = time.perf_counter()
      self._compiled[key] = self.lower(program, state, items, *more).compile()
      self.compile_seconds += time.perf_counter() - start
    return self._compiled[key]

  def _dispatch(self, program, state, items, *more):
    compiled = self.compile(program, state, items, *more)
    return compiled(state, self._supply.data, self._supply.frozen, items, *more)


def _one_of_equals(fun):
  return lambda *args: jax.tree.map(lambda x: x[0], fun(*args))


def _local_step(algorithm, loss, fetch, seed):
  """`(state, data, frozen, item) -> (state, v_i)`: one step of one worker, with the direction it took."""

  def step(state, data, frozen, item):
    rng = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), state.step), lax.axis_index(AXES))
    batch = fetch(data, item)
    value, grads = jax.value_and_grad(loss)(state.params, frozen, batch, rng)
    correction = algorithm.correction(state.opt_state)
    direction = grads if correction is None else jax.tree.map(lambda g, c: g.astype(c.dtype) - c, grads, correction)
    updates, opt_state = algorithm.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    loss_sum = state.loss_sum + value.astype(state.loss_sum.dtype)
    return WorkerState(params, opt_state, state.step + 1, loss_sum), direction

  return step


def _run(algorithm, step):
  def run(state, data, frozen, items, rounds):
    def one_round(r, state):
      in_round = jax.tree.map(lambda x: x[r], items)
      state, _ = lax.scan(lambda state, item: (step(state, data, frozen, item)[0], None), state, in_round)
      return _communicate(algorithm, state)

    # The number of rounds is an operand, so that however rounds are grouped, it is one program and the same bits.
    state = lax.fori_loop(0, rounds, one_round, state)
    return state, state.step

  return run


def _measure(algorithm, step):
  def measure(state, data, frozen, items):
    def body(carry, item):
      return step(carry[0], data, frozen, item), None

    no_direction = jax.eval_shape(lambda: step(state, data, frozen, jax.tree.map(lambda x: x[0, 0], items))[1])
    no_direction = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), no_direction)
    (state, direction), _ = lax.scan(body, (state, no_direction), jax.tree.map(lambda x: x[0], items))
    scalars = _scalars(algorithm, state, direction)
    state = _communicate(algorithm, state)
    return state._replace(loss_sum=jnp.zeros_like(state.loss_sum)), scalars

  return measure


def _trace(algorithm, step):
  def trace(state, data, frozen, items):
    def body(state, item):
      state, direction = step(state, data, frozen, item)
      scalars = _scalars(algorithm, state, direction)
      state = state._replace(loss_sum=jnp.zeros_like(state.loss_sum))
      return state, (scalars, algorithm.consensus(state.params, state.opt_state))

    state, (scalars, models) = lax.scan(body, state, jax.tree.map(lambda x: x[0], items))
    state = _communicate(algorithm, state)
    last = algorithm.consensus(state.params, state.opt_state)
    return state, (scalars, jax.tree.map(lambda all, x: all.at[-1].set(x), models, last))

  return trace


def _communicate(algorithm, state):
  params, opt_state = algorithm.communicate(state.params, state.opt_state)
  return state._replace(params=params, opt_state=opt_state)


def _scalars(algorithm, state, direction):
  correction = algorithm.correction(state.opt_state)
  return {
    'loss_sum': lax.pmean(state.loss_sum, AXES),
    'consensus_distance': _spread(state.params),
    'variance_among_workers': _spread(direction),
    'correction_norm': jnp.sqrt(lax.pmean(_square(correction), AXES)),
  }


def _spread(tree):
  """(1/N)Σ‖x_i − x̂‖²."""
  tree = widened(tree)
  mean = lax.pmean(tree, AXES)
  return lax.pmean(_square(jax.tree.map(jnp.subtract, tree, mean)), AXES)


def _square(tree):
  dtype = jnp.result_type(float)
  return sum((jnp.sum(jnp.square(x.astype(dtype))) for x in jax.tree.leaves(tree)), jnp.zeros([], dtype))
