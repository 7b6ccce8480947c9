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

from vrl_jax.algorithms.base import AXIS, Algorithm, OnDevice, mean_over_workers, widened
from vrl_jax.arrangement import DEVICE_AXIS, Arrangement, in_turn
from vrl_jax.batch_stats import communicated, evaluated
from vrl_jax.groups import one_after_another, over_workers
from vrl_jax.tiles import in_tiles

AXES = (DEVICE_AXIS, OnDevice(AXIS))
"""The `axis_name` of an algorithm that runs in this engine."""


class WorkerState(NamedTuple):
  """What a worker carries from step to step; leaves have the leading axes [D, N/D].

  Attributes:
    params: x_i.
    opt_state: the state of the algorithm's transform.
    step: int32, the number of steps taken.
    loss_sum: the sum of the mini-batch losses since it was last measured.
    batch_stats: the running statistics of batch normalisation, or ().

  >>> import vrl_jax
  >>> params = jnp.zeros((1, 2, 3))  # one device with two workers
  >>> algorithm = vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name=AXES)
  >>> state = WorkerState(params, jax.vmap(jax.vmap(algorithm.init))(params), jnp.zeros((1, 2), int), jnp.zeros((1, 2)))
  >>> state.opt_state.delta.shape
  (1, 2, 3)
  """

  params: Any
  opt_state: Any
  step: jax.Array
  loss_sum: jax.Array
  batch_stats: Any = ()


class Model(NamedTuple):
  """What is evaluated or shipped: `params`, and `batch_stats` or ().

  >>> Model(params=1.0).others({}), Model(params=1.0, batch_stats={'mean': 0.5}).others({})
  ({}, {'batch_stats': {'mean': 0.5}})
  """

  params: Any
  batch_stats: Any = ()

  def others(self, frozen: Any) -> Any:
    """What the model needs besides its parameters: the constants and, if it has them, the statistics."""
    return {**frozen, 'batch_stats': self.batch_stats} if self.batch_stats else frozen


def consensus(algorithm: Algorithm, policy: str | None) -> Callable[[Any, Any, Any], Model]:
  """`(params, opt_state, batch_stats) -> Model` of one worker, with the policy for its statistics.

  >>> from vrl_jax.algorithms import local_sgd
  >>> worker = consensus(local_sgd(optax.sgd(0.1), axis_name=AXES), 'average')
  >>> over_workers = jax.vmap(jax.vmap(worker, (0, None, 0), axis_name=AXIS), (0, None, 0), axis_name=DEVICE_AXIS)
  >>> x = jnp.array([[1.0, 3.0]])  # two workers on one device
  >>> jax.tree.map(lambda leaf: leaf.tolist(), over_workers(x, (), {'mean': x + 1}))
  Model(params=[[2.0, 2.0]], batch_stats={'mean': [[3.0, 3.0]]})
  """
  return lambda params, opt_state, stats: Model(algorithm.consensus(params, opt_state), evaluated(policy, stats, AXES))


class Supply(NamedTuple):
  """Where mini-batches come from.

  Attributes:
    data: what lives on the devices, [D, ...]; the workers of a device share it.
    fetch: `(data, item) -> batch`: what a step makes of its item (indices into `data`, or the batch itself).
    frozen: constants of the model such as an embedding table, [D, ...].

  >>> supply = Supply(data=jnp.arange(10.0)[None], fetch=lambda data, indices: data[indices])
  >>> supply.fetch(supply.data[0], np.array([7, 3])).tolist()  # what a worker makes of the indices of its batch
  [7.0, 3.0]
  """

  data: Any
  fetch: Callable[[Any, Any], Any]
  frozen: Any = ()


class Engine:
  """Runs rounds of one algorithm on one loss.

  Items, a pytree with leaves [D, N/D, rounds, k, ...], are what the steps fetch their batches with. A program is
  compiled once for each shape of them, donates the state and returns a new one.

  >>> import vrl_jax
  >>> from vrl_jax.arrangement import arrange
  >>> algorithm = vrl_jax.vrl_sgd(optax.sgd(0.05), axis_name=AXES)
  >>> supply = Supply(data=None, fetch=lambda data, item: item)  # the items are the batches
  >>> loss = lambda x, frozen, target, rng: (x - target) ** 2
  >>> engine = Engine(algorithm, loss, arrange(workers=2, devices=1), supply)
  >>> targets = np.broadcast_to(np.array([-1.0, 3.0], np.float32)[None, :, None, None], (1, 2, 30, 4))
  >>> state, token = engine.run(engine.init(np.float32(0.0)), targets, rounds=30)  # 30 rounds of k = 4 steps
  >>> round(float(engine.consensus(state).params[0]), 4)  # the minimum of the mean of (x + 1)^2 and (x - 3)^2
  1.0
  """

  def __init__(
    self,
    algorithm: Algorithm,
    loss: Callable,
    arrangement: Arrangement,
    supply: Supply,
    *,
    seed: int = 0,
    unroll: int | None = None,
    at_once: int | None = None,
    tile_bytes: int | None = None,
    batch_stats: str | None = None,
  ):
    """Builds the engine.

    Args:
      algorithm: an algorithm made with `axis_name=rounds.AXES`.
      loss: `(params, frozen, batch, rng) -> scalar`, the mean over one worker's mini-batch; with batch statistics
        `-> (scalar, new statistics)`, and the present ones are `frozen['batch_stats']`.
      arrangement: the workers and their devices.
      supply: where mini-batches come from.
      seed: of the `rng` that `loss` gets, another one for each worker and step.
      unroll: the steps in one pass of a round's loop; None chooses.
      at_once: how many workers of a device compute their gradients at once; None chooses.
      tile_bytes: see `vrl_jax.tiles`; None chooses.
      batch_stats: one of `vrl_jax.batch_stats.POLICIES`, for a model that has statistics.
    """
    self.arrangement = arrangement
    self.compile_seconds = 0.0
    self._algorithm = algorithm
    self._supply = supply
    self._compiled = {}
    gradient = jax.value_and_grad(loss if batch_stats else _with_no_stats(loss), has_aux=True)
    platform = arrangement.devices[0].platform
    if batch_stats != 'sync':  # which needs all workers at the same time
      gradient = over_workers(gradient, platform, at_once)
    step = _local_step(algorithm, gradient, supply.fetch, seed)
    new_state = lambda *args: step(*args)[0]
    alone = _period(in_tiles(new_state, tile_bytes), unroll)
    period = one_after_another(_period(new_state, unroll), platform, at_once, alone)
    communicate, agreed = _communicate(algorithm, batch_stats), consensus(algorithm, batch_stats)
    axes = (0, None, None, 0)
    programs = {
      'run': (_run(period, communicate), (*axes, None)),
      'measure': (_measure(algorithm, step, communicate), axes),
      'trace': (_trace(algorithm, step, communicate, agreed), axes),
    }
    self._programs = {
      name: arrangement.pmap(jax.vmap(worker, in_axes, axis_name=AXIS), donate_argnums=0)
      for name, (worker, in_axes) in programs.items()
    }
    self._consensus = arrangement.pmap(_one_of_equals(jax.vmap(agreed, axis_name=AXIS)))

  def init(self, params: Any, batch_stats: Any = ()) -> WorkerState:
    """The state at the start: every worker has `params` and `batch_stats`, trees without worker axes."""

    def worker(params, batch_stats):
      loss_sum = jnp.zeros([], jnp.result_type(float))
      return WorkerState(params, self._algorithm.init(params), jnp.zeros([], jnp.int32), loss_sum, batch_stats)

    start = jax.vmap(worker, in_axes=None, axis_size=self.arrangement.workers_per_device)
    return self.arrangement.pmap(start)(*self.arrangement.replicate((params, batch_stats)))

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

  def consensus(self, state: WorkerState) -> Model:
    """The model to evaluate, a copy per device: leaves [D, ...]."""
    return self._consensus(state.params, state.opt_state, state.batch_stats)

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
    return in_turn(compiled, state, self._supply.data, self._supply.frozen, items, *more)


def choose_unroll(unroll: int | None = None) -> int:
  """The local steps in one pass of a round's loop: 1.

  `python -m benchmarks choices` on 2 cores, time of 2 and of 5 relative to 1: LeNet 1.03 and 1.01, the MLP 1.00 and 0.99.

  Args:
    unroll: a number to take instead; None chooses.

  >>> choose_unroll(), choose_unroll(4)
  (1, 4)
  """
  return unroll or 1


def _one_of_equals(fun):
  return lambda *args: jax.tree.map(lambda x: x[0], fun(*args))


def _with_no_stats(loss):
  return lambda *args: (loss(*args), ())


def _local_step(algorithm, value_and_grad, fetch, seed):
  """`(state, data, frozen, worker, item) -> (state, v_i)`: one step of worker i, with the direction it took."""

  def step(state, data, frozen, worker, item):
    rng = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), state.step), worker)
    batch = fetch(data, item)
    frozen = Model(state.params, state.batch_stats).others(frozen)
    (value, stats), grads = value_and_grad(state.params, frozen, batch, rng)
    correction = algorithm.correction(state.opt_state)
    direction = grads if correction is None else jax.tree.map(lambda g, c: g.astype(c.dtype) - c, grads, correction)
    updates, opt_state = algorithm.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    loss_sum = state.loss_sum + value.astype(state.loss_sum.dtype)
    return WorkerState(params, opt_state, state.step + 1, loss_sum, stats), direction

  return step


def _period(step, unroll):
  def period(state, data, frozen, worker, items):
    local_step = lambda state, item: (step(state, data, frozen, worker, item), None)
    return lax.scan(local_step, state, items, unroll=choose_unroll(unroll))[0]

  return period


def _run(period, communicate):
  def run(state, data, frozen, items, rounds):
    def one_round(r, state):
      in_round = jax.tree.map(lambda x: x[r], items)
      return communicate(period(state, data, frozen, lax.axis_index(AXES), in_round))

    # The number of rounds is an operand, so that however rounds are grouped, it is one program and the same bits.
    state = lax.fori_loop(0, rounds, one_round, state)
    return state, state.step

  return run


def _measure(algorithm, step, communicate):
  def measure(state, data, frozen, items):
    def body(carry, item):
      return step(carry[0], data, frozen, worker, item), None

    worker = lax.axis_index(AXES)
    no_direction = jax.eval_shape(lambda: step(state, data, frozen, worker, jax.tree.map(lambda x: x[0, 0], items))[1])
    no_direction = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), no_direction)
    (state, direction), _ = lax.scan(body, (state, no_direction), jax.tree.map(lambda x: x[0], items))
    scalars = _scalars(algorithm, state, direction)
    state = communicate(state)
    return state._replace(loss_sum=jnp.zeros_like(state.loss_sum)), scalars

  return measure


def _trace(algorithm, step, communicate, agreed):
  def trace(state, data, frozen, items):
    def body(state, item):
      state, direction = step(state, data, frozen, lax.axis_index(AXES), item)
      scalars = _scalars(algorithm, state, direction)
      state = state._replace(loss_sum=jnp.zeros_like(state.loss_sum))
      return state, (scalars, agreed(state.params, state.opt_state, state.batch_stats))

    state, (scalars, models) = lax.scan(body, state, jax.tree.map(lambda x: x[0], items))
    state = communicate(state)
    last = agreed(state.params, state.opt_state, state.batch_stats)
    return state, (scalars, jax.tree.map(lambda all, x: all.at[-1].set(x), models, last))

  return trace


def _communicate(algorithm, policy):
  def communicate(state):
    params, opt_state = algorithm.communicate(state.params, state.opt_state)
    stats = communicated(policy, state.batch_stats, AXES)
    return state._replace(params=params, opt_state=opt_state, batch_stats=stats)

  return communicate


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
  mean = mean_over_workers(tree, AXES)
  tree = widened(tree)
  return lax.pmean(_square(jax.tree.map(jnp.subtract, tree, mean)), AXES)


def _square(tree):
  dtype = jnp.result_type(float)
  return sum((jnp.sum(jnp.square(x.astype(dtype))) for x in jax.tree.leaves(tree)), jnp.zeros([], dtype))
