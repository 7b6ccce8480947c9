"""Rounds whose transfers are programs of their own, which run at the same time as the local steps.

In one program nothing makes a delayed transfer wait for the local steps that it overlaps with, and the compilers of
accelerators schedule it beside them. XLA's CPU backend runs the parts of one program one after the other, so there
the host overlaps them: it calls the local steps and, from another thread (programs called from one thread also run one
after the other), the collective of the transfer that ends after them. In return each of these programs copies much of
the state of the workers.

While a transfer is under way no other program with a collective is called, so that all processes call them in the same
order.
"""

import concurrent.futures
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vrl_jax.algorithms.core.algorithm import Algorithm, Plan
from vrl_jax.algorithms.core.axes import AXES, AXIS
from vrl_jax.algorithms.core.transfers import Moment
from vrl_jax.engine.batch_stats import communicate_stats
from vrl_jax.engine.placement import Placement
from vrl_jax.engine.state import WorkerState


def can_overlap(algorithm: Algorithm, period: int) -> bool:
  """Whether a transfer of the algorithm takes some of the local steps of such a period.

  >>> import optax, vrl_jax
  >>> local = vrl_jax.local_sgd(optax.sgd(0.1))
  >>> can_overlap(local, period=4), can_overlap(vrl_jax.overlapped(local, delay=2), period=4)
  (False, True)
  """
  plan = algorithm.communications(period)
  return len(_moments(plan)) == len(plan) and any(moment.arrival for _, moment in _moments(plan))


def _moments(plan: Plan) -> list[tuple[int, Moment]]:
  return [(at, moment) for at, moment in plan if isinstance(moment, Moment)]


class OverlappedRounds:
  """Runs the rounds of an algorithm for which :func:`can_overlap` is true; a part of :class:`vrl_jax.Engine`.

  >>> import optax, vrl_jax
  >>> algorithm = vrl_jax.overlapped(vrl_jax.vrl_sgd(optax.sgd(0.05)), delay=2)
  >>> supply = vrl_jax.Supply(data=None, fetch=lambda data, item: item)  # the items are the batches
  >>> loss = lambda x, frozen, target, rng: (x - target) ** 2
  >>> placement = vrl_jax.place_workers(workers=2, devices=1)
  >>> engine = vrl_jax.Engine(algorithm, loss, placement, supply, overlap=True)
  >>> targets = np.broadcast_to(np.array([-1.0, 3.0], np.float32)[None, :, None, None], (1, 2, 30, 4))
  >>> state, token = engine.run(engine.init(np.float32(0.0)), targets, rounds=30)  # 30 rounds of k = 4 steps
  >>> round(float(engine.consensus(state).params[0]), 4)  # the minimum of the mean of (x + 1)^2 and (x - 3)^2
  1.0
  """

  def __init__(
    self,
    algorithm: Algorithm,
    period: Callable[..., WorkerState],
    placement: Placement,
    compile: Callable[[tuple[Any, ...], Callable[[], jax.stages.Lowered]], jax.stages.Compiled],
    batch_stats: str | None = None,
  ):
    """Keeps its arguments.

    Args:
      algorithm: the algorithm.
      period: `(state, data, frozen, worker, items) -> state`, the local steps of a worker.
      placement: the workers and their devices.
      compile: `(key, lower) -> compiled program`, the same for the same key.
      batch_stats: the policy for batch statistics.
    """
    self._algorithm = algorithm
    self._period = period
    self._placement = placement
    self._compile = compile
    self._batch_stats = batch_stats
    self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='transfer')

  def run(self, state: WorkerState, data: Any, frozen: Any, items: Any, rounds: int) -> tuple[WorkerState, jax.Array]:
    """Runs the first `rounds` rounds of `items`; see `Engine.run`."""
    length = jax.tree.leaves(items)[0].shape[3]
    token = state.step
    for r in range(rounds):
      place = 0
      for at, moment in _moments(self._algorithm.communications(length)):
        under_way = self._send(moment.arrival, state) if moment.arrival else None
        where = self._placement.replicate((np.int32(r), np.int32(place)))
        make = functools.partial(self._steps, at - place)
        state = self._call(('steps', at - place), make, state, data, frozen, items, *where)
        exchanged = under_way.result() if under_way else ()
        is_last = at == length
        make = functools.partial(self._moment, moment, is_last)
        state, token = self._call((moment, is_last), make, state, exchanged)
        place = at
    return state, token

  def _send(self, arrival, state):
    """Starts the collective of a transfer in the other thread."""
    vectors = self._call(('outgoing', arrival), functools.partial(self._outgoing, arrival), state.opt_state)
    program = self._program(('exchange',), functools.partial(self._mapped, arrival.exchange), vectors)
    return self._thread.submit(lambda: jax.block_until_ready(program(vectors)))

  def _call(self, key, make, *args):
    return self._placement.dispatch(self._program(key, make, *args), *args)

  def _program(self, key, make, *args):
    shapes = tuple(x.shape for x in jax.tree.leaves(args))
    return self._compile((*key, shapes), lambda: make().lower(*args))

  def _steps(self, length):
    def steps(state, data, frozen, items, r, place):
      some = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x[r], place, length), items)
      return self._period(state, data, frozen, lax.axis_index(AXES), some)

    return self._mapped(steps, 0, None, None, 0, None, None, donate_argnums=0)

  def _moment(self, moment, is_last):
    def after_step(state, exchanged):
      params, opt_state = moment(state.params, state.opt_state, *([exchanged] if moment.arrival else []))
      stats = communicate_stats(self._batch_stats if is_last else None, state.batch_stats, AXES)
      state = state._replace(params=params, opt_state=opt_state, batch_stats=stats)
      return state, state.step

    return self._mapped(after_step, donate_argnums=0)

  def _outgoing(self, arrival):
    # Copies: the state, of which these may be parts, is donated to the local steps.
    return self._mapped(lambda opt_state: jax.tree.map(jnp.copy, arrival.outgoing(opt_state)))

  def _mapped(self, worker, *in_axes, **kwargs):
    return self._placement.pmap(jax.vmap(worker, in_axes or 0, axis_name=AXIS), **kwargs)
