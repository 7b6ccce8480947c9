"""The interface that every algorithm implements."""

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import optax

NEEDS_PARAMS = 'this transform needs the parameters: update(grads, state, params)'
_NOT_A_TRANSFORM = (
  'an Algorithm is not an optax transform: inside a combinator it would never communicate. Use '
  'vrl_jax.as_optax(algorithm, period) as the last link of the chain, or vrl_jax.precede(transform, algorithm); '
  'the local step alone is algorithm.transform.init and algorithm.transform.update'
)

Params = Any
State = Any
Plan = tuple[tuple[int, Callable[[Params, State], tuple[Params, State]]], ...]


class Algorithm(NamedTuple):
  """A distributed training algorithm: an optax transform for the local steps, and the end of a period.

  Every function acts on the values of one worker. Functions that communicate run under a mapped axis (`jax.vmap`,
  `jax.pmap` or `jax.shard_map`) named by the algorithm's `axis_name`; N workers are N positions along it. A period is
  any number of calls of `transform.update`, the same on every worker, followed by one call of `communicate`; the
  algorithm never sees the length of the period.

  An Algorithm is not a `GradientTransformation`: inside `optax.chain` it would never communicate, so its `init` and
  `update` raise TypeError. :func:`vrl_jax.as_optax` returns a transform that communicates by itself.

  Attributes:
    transform: one local step, an optax transform; per-worker memory such as VRL-SGD's Δ is part of its state.
    communicate: `(params, state) -> (params, state)`, the end of a period.
    consensus: `(params, state) -> params`, the model to evaluate or export; it has no side effects.
    correction: `(state) -> pytree like params`, the correction that `transform.update` subtracts from the gradient.
    participation: the fraction of the workers that send at each communication; used for accounting only.
    plan: `(period) -> ((step, function), ...)`, for an algorithm that also communicates inside a period: the functions
      `(params, state) -> (params, state)` to call after these local steps (1 is the first, `period` the last) of a
      period of this length; None calls `communicate` after the last. `communicate` does all of it at once.
    exchange: what :func:`vrl_jax.streaming`, :func:`vrl_jax.overlapped` and :func:`vrl_jax.quantised` need to know of
      the algorithm; None if they cannot be applied to it.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.array([0.0, 4.0])  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> updates, state = jax.vmap(algorithm.transform.update)(jnp.array([2.0, 2.0]), state, params)  # a local step
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)  # the end of a period
  >>> params.tolist()
  [1.0, 1.0]
  """

  transform: optax.GradientTransformationExtraArgs
  communicate: Callable[[Params, State], tuple[Params, State]]
  consensus: Callable[[Params, State], Params]
  correction: Callable[[State], Params]
  participation: float = 1.0
  plan: Callable[[int], Plan] | None = None
  exchange: Any = None

  def communications(self, period: int) -> Plan:
    """What to call after which local step of a period of this length."""
    return self.plan(period) if self.plan else ((period, self.communicate),)

  @property
  def init(self) -> NoReturn:
    """Raises TypeError: the local step is `transform.init`."""
    raise TypeError(_NOT_A_TRANSFORM)

  @property
  def update(self) -> NoReturn:
    """Raises TypeError: the local step is `transform.update`."""
    raise TypeError(_NOT_A_TRANSFORM)


def no_correction(state: State) -> Any:
  """The `correction` of an algorithm that does not correct the gradient: None, which means zero.

  >>> import vrl_jax
  >>> print(vrl_jax.local_sgd(optax.sgd(0.1)).correction(state=None))
  None
  """
  del state
