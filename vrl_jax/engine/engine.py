"""The engine: runs rounds of one algorithm on one loss, for all workers at once, as one compiled program.

N workers run on D devices as a pmap over D of a vmap over N/D, with both axes in the algorithm's `axis_name`, so the
trajectory does not depend on D. The arrays of a run have the leading axes [D, N/D]. If workers are larger than a device,
each of the D is an island of several, see `vrl_jax.engine.placement`. The period is the length of an axis of the items;
the algorithm never sees it.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.engine.feed import Supply
from vrl_jax.engine.overlap import OverlappedRounds, can_overlap
from vrl_jax.engine.placement import Placement
from vrl_jax.engine.program import Program
from vrl_jax.engine.programs import local_steps, make_programs
from vrl_jax.engine.state import Model, WorkerState


class Engine:
  """Runs rounds of one algorithm on one loss.

  The steps fetch their mini-batches by `items`, a pytree with leaves [D, N/D, rounds, k, ...]. A program is compiled
  once for each shape of the items; it donates the state and returns a new one.

  >>> import optax, vrl_jax
  >>> algorithm = vrl_jax.vrl_sgd(optax.sgd(0.05))
  >>> supply = Supply(data=None, fetch=lambda data, item: item)  # the items are the batches
  >>> loss = lambda x, frozen, target, rng: (x - target) ** 2
  >>> engine = Engine(algorithm, loss, vrl_jax.place_workers(workers=2, devices=1), supply)
  >>> targets = np.broadcast_to(np.array([-1.0, 3.0], np.float32)[None, :, None, None], (1, 2, 30, 4))
  >>> state, token = engine.run(engine.init(np.float32(0.0)), targets, rounds=30)  # 30 rounds of k = 4 steps
  >>> round(float(engine.consensus(state).params[0]), 4)  # the minimum of the mean of (x + 1)^2 and (x - 3)^2
  1.0
  """

  def __init__(
    self,
    algorithm: Algorithm,
    loss: Callable[..., Any],
    placement: Placement,
    supply: Supply,
    *,
    seed: int = 0,
    workers_at_once: int | None = None,
    tile_bytes: int | None = None,
    batch_stats: str | None = None,
    overlap: bool = False,
  ):
    """Keeps its arguments; nothing is traced or compiled.

    Args:
      algorithm: any algorithm with the default `axis_name`, or with `vrl_jax.AXES`.
      loss: `(params, frozen, batch, rng) -> scalar`, the mean over one worker's mini-batch; with batch statistics
        `-> (scalar, new statistics)`, and the current ones are `frozen['batch_stats']`.
      placement: the workers and their devices.
      supply: the source of the mini-batches.
      seed: of the `rng` that `loss` receives, which differs between workers and steps.
      workers_at_once: the number of workers of a device that compute their gradients together; None chooses, see
        `vrl_jax.cpu.worker_order`.
      tile_bytes: the size of tiles of large matrices, see `vrl_jax.cpu.tiled_updates`; None chooses.
      batch_stats: one of `vrl_jax.engine.batch_stats.POLICIES`, for a model that has statistics.
      overlap: whether delayed transfers are programs of their own beside the local steps, see `vrl_jax.engine.overlap`.
    """
    self.placement = placement
    self.compile_seconds = 0.0
    self._algorithm = algorithm
    self._loss = loss
    self._supply = supply
    self._options: dict[str, Any] = {
      'seed': seed,
      'workers_at_once': workers_at_once,
      'tile_bytes': tile_bytes,
      'batch_stats': batch_stats,
    }
    self._overlap = overlap
    self._compiled: dict[tuple[Any, ...], jax.stages.Compiled] = {}

  @functools.cached_property
  def _programs(self) -> dict[str, Program]:
    return make_programs(self._algorithm, self._loss, self.placement, self._supply.fetch, **self._options)

  @functools.cached_property
  def _overlapped_rounds(self) -> OverlappedRounds:
    _, period = local_steps(self._algorithm, self._loss, self.placement, self._supply.fetch, **self._options)
    return OverlappedRounds(
      self._algorithm, period, self.placement, self._compiled_once, batch_stats=self._options['batch_stats']
    )

  def _overlaps(self, items: Any) -> bool:
    # An island has a collective in every local step, and so have shared batch statistics.
    in_steps = self.placement.devices_per_island > 1 or self._options['batch_stats'] == 'sync'
    return self._overlap and not in_steps and can_overlap(self._algorithm, jax.tree.leaves(items)[0].shape[3])

  def init(self, params: Any, batch_stats: Any = ()) -> WorkerState:
    """The initial state: every worker has `params` and `batch_stats`, trees without worker axes."""
    start = lambda *model: self.placement.constrain(self._start(*model), lead=1)
    return self.placement.pmap(start)(*self.placement.copy_model((params, batch_stats)))

  def state_shapes(self, params: Any, batch_stats: Any = ()) -> WorkerState:
    """The shapes of `init`, also for devices that are not attached."""
    of_device = jax.eval_shape(self._start, params, batch_stats)
    islands, sharding = self.placement.islands, self.placement.state_sharding
    shape = lambda x: (islands, *x.shape)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(shape(x), x.dtype, sharding=sharding(shape(x))), of_device)

  @property
  def _start(self) -> Callable[..., WorkerState]:
    """`(params, batch_stats) -> WorkerState` of the workers of a device, leaves [N/D, ...]."""

    def worker(params: Any, batch_stats: Any) -> WorkerState:
      loss_sum = jnp.zeros([], jnp.result_type(float))
      opt_state = self._algorithm.transform.init(params)
      return WorkerState(params, opt_state, jnp.zeros([], jnp.int32), loss_sum, batch_stats)

    return jax.vmap(worker, in_axes=None, axis_size=self.placement.workers_per_device)

  def run(self, state: WorkerState, items: Any, rounds: int) -> tuple[WorkerState, jax.Array]:
    """Runs the first `rounds` rounds of `items`, mostly in one dispatch; the only collectives are the algorithm's.

    Returns:
      The new state, and a small array to call `block_until_ready` on, as the state will be donated.
    """
    if self._overlaps(items):
      return self._overlapped_rounds.run(state, self._supply.data, self._supply.frozen, items, rounds)
    return self._dispatch('run', state, items, self.placement.replicate(np.int32(rounds)))

  def measure(self, state: WorkerState, items: Any) -> tuple[WorkerState, dict[str, jax.Array]]:
    """Runs the one round of `items`, with metrics of its last local step.

    Returns:
      The new state and the metrics of `vrl_jax.engine.round_metrics`, [D, N/D] equal copies.
    """
    return self._dispatch('measure', state, items)

  def trace(self, state: WorkerState, items: Any) -> tuple[WorkerState, tuple[dict[str, jax.Array], Any]]:
    """Runs the one round of `items`, with metrics of every local step; for small models, as every step communicates.

    Returns:
      The new state; the metrics of `measure` with a last axis k; the consensus models with an axis k.
    """
    return self._dispatch('trace', state, items)

  def consensus(self, state: WorkerState) -> Model:
    """The model to evaluate, one copy per device or island: leaves [D, ...]."""
    return self._programs['consensus'](state.params, state.opt_state, state.batch_stats)

  def lower(self, program: str, state: WorkerState, items: Any, *more: Any) -> jax.stages.Lowered:
    """Lowers the program 'run', 'measure' or 'trace', to compile or inspect it."""
    return self._programs[program].lower(state, self._supply.data, self._supply.frozen, items, *more)

  def compile(self, program: str, state: WorkerState, items: Any, *more: Any) -> jax.stages.Compiled:
    """The compiled program for these shapes; compiles it the first time and adds the time to `compile_seconds`."""
    key = (program, *(x.shape for x in jax.tree.leaves(items)))
    return self._compiled_once(key, lambda: self.lower(program, state, items, *more))

  def _compiled_once(self, key: tuple[Any, ...], lower: Callable[[], jax.stages.Lowered]) -> jax.stages.Compiled:
    if key not in self._compiled:
      start = time.perf_counter()
      self._compiled[key] = lower().compile()
      self.compile_seconds += time.perf_counter() - start
    return self._compiled[key]

  def _dispatch(self, program, state, items, *more):
    compiled = self.compile(program, state, items, *more)
    return self.placement.dispatch(compiled, state, self._supply.data, self._supply.frozen, items, *more)
