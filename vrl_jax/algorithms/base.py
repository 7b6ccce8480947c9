"""The interface of every algorithm, and what several of them share."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

AXIS = 'workers'
"""The default name of the mapped axis over which the workers communicate."""

NEEDS_PARAMS = 'this transform needs the parameters: update(grads, state, params)'

AxisName = str | tuple[str, ...]
Params = Any
State = Any


class Algorithm(NamedTuple):
  """A distributed training algorithm: local steps, and what ends a period of them.

  All functions act on one worker's values. Those that communicate run under a mapped axis (`jax.vmap`, `jax.pmap` or
  `jax.shard_map`) that bears the algorithm's `axis_name`; N workers are N positions along it. A period is any number of
  calls of `update`, the same on every worker, and then one of `communicate`: the algorithm itself never sees its length.

  An Algorithm is not a `GradientTransformation`: inside `optax.chain` it would never communicate, so optax's
  combinators refuse it. :func:`vrl_jax.as_optax` makes one that communicates by itself.

  Attributes:
    transform: one local step, an optax transform; per-worker memory such as VRL-SGD's Δ lives in its state.
    communicate: `(params, state) -> (params, state)`, the end of a period.
    consensus: `(params, state) -> params`, the model to evaluate or to ship; changes nothing.
    correction: `(state) -> pytree like params`, what `update` subtracts from the gradient.
    participation: the share of the workers that really send at a communication; for the accounting.
  """

  transform: optax.GradientTransformationExtraArgs
  communicate: Callable[[Params, State], tuple[Params, State]]
  consensus: Callable[[Params, State], Params]
  correction: Callable[[State], Params]
  participation: float = 1.0

  @property
  def init(self) -> optax.TransformInitFn:
    """The transform's `init`."""
    _refuse_optax_combinators()
    return self.transform.init

  @property
  def update(self) -> optax.TransformUpdateExtraArgsFn:
    """The transform's `update`."""
    _refuse_optax_combinators()
    return self.transform.update


def _refuse_optax_combinators():
  # optax.chain and its like take any object that has `init` and `update`; the only thing that tells them from a
  # training loop is who asks.
  caller = sys._getframe(2).f_globals.get('__name__', '')
  if caller.split('.')[0] == 'optax':
    raise TypeError(
      'an Algorithm inside an optax combinator would never communicate: put '
      'vrl_jax.as_optax(algorithm, period) there, as the last link of the chain, or place what comes before it with '
      'vrl_jax.precede(transform, algorithm)'
    )


def mean_over_workers(tree: Params, axis_name: AxisName) -> Params:
  """The mean of every leaf over the workers, in float32 or wider whatever the leaves are.

  One all-reduce of the whole tree. Narrow types are widened before they are summed, so that deviations from the mean
  add up to zero over the workers.
  """
  return lax.pmean(widened(tree), axis_name)


def widened(tree: Params) -> Params:
  """`tree` in float32 or wider."""
  return jax.tree.map(lambda x: x.astype(wide_dtype(x)), tree)


def wide_dtype(x: jax.Array) -> jnp.dtype:
  """`x`'s dtype, or float32 if that is narrower."""
  return x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.dtype(jnp.float32)


def cast_like(tree: Params, like: Params) -> Params:
  """`tree` with the dtypes of `like`."""
  return jax.tree.map(lambda x, l: x.astype(l.dtype), tree, like)


def no_correction(state: State) -> Any:
  """`correction` of an algorithm that takes the gradient as it is: None, which stands for zeros."""
  del state


def precede(transform: optax.GradientTransformation, algorithm: Algorithm) -> Algorithm:
  """Puts an optax transform before an algorithm: it acts on each worker's raw gradient.

  This is the place of what must not stand behind VRL-SGD's Δ because it is not linear (clipping, a sign), and of weight
  decay that is part of the loss.

  Args:
    transform: any gradient transformation; each worker keeps its own state of it.
    algorithm: the algorithm that gets its output as the gradient.

  Returns:
    The composed Algorithm.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.precede(optax.clip_by_global_norm(1.0), vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name='w'))
  >>> params = {'x': jnp.zeros((2, 3))}  # two workers
  >>> state = jax.vmap(algorithm.init)(params)
  >>> updates, state = jax.vmap(algorithm.update)({'x': jnp.full((2, 3), 100.0)}, state, params)
  >>> [round(float(norm), 4) for norm in jnp.linalg.norm(updates['x'], axis=1)]
  [0.1, 0.1]
  """
  first = optax.with_extra_args_support(transform)

  def init(params):
    return first.init(params), algorithm.init(params)

  def update(grads, state, params=None, **extra_args):
    first_state, state = state
    grads, first_state = first.update(grads, first_state, params, **extra_args)
    updates, state = algorithm.update(grads, state, params, **extra_args)
    return updates, (first_state, state)

  def communicate(params, state):
    first_state, state = state
    params, state = algorithm.communicate(params, state)
    return params, (first_state, state)

  return algorithm._replace(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: algorithm.consensus(params, state[1]),
    correction=lambda state: algorithm.correction(state[1]),
  )
