"""The interface of every algorithm, and what several of them share."""

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

AXIS = 'workers'
"""The default name of the mapped axis over which the workers communicate."""

_MOST_SLICES = 64  # beyond it the program becomes long

NEEDS_PARAMS = 'this transform needs the parameters: update(grads, state, params)'

AxisName = str | tuple[str, ...]
Params = Any
State = Any


class OnDevice(str):
  """The name of a `jax.vmap` axis: all workers along it are on one device, and nothing is sent among them.

  An `axis_name` may say so, as a promise that lets :func:`mean_over_workers` add them up faster on CPU.

  >>> OnDevice('workers') == 'workers'
  True
  """


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

  >>> import vrl_jax
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.array([0.0, 4.0])  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.init)(params)
  >>> updates, state = jax.vmap(algorithm.update)(jnp.array([2.0, 2.0]), state, params)  # a local step
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)  # the end of a period
  >>> params.tolist()
  [1.0, 1.0]
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

  >>> import jax, jax.numpy as jnp
  >>> jax.vmap(lambda x: mean_over_workers(x, 'w'), axis_name='w')(jnp.array([1.0, 2.0, 6.0])).tolist()
  [3.0, 3.0, 3.0]
  """
  names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
  here = tuple(name for name in names if isinstance(name, OnDevice) and lax.axis_size(name) <= _MOST_SLICES)
  tree = widened(tree)
  for name in here:
    tree = jax.tree.map(functools.partial(_sum_of_slices, vmapped=name), tree)
  if len(here) < len(names):
    tree = lax.psum(tree, tuple(name for name in names if name not in here))
  workers = lax.axis_size(names)
  return jax.tree.map(lambda x: x / workers, tree)


def _sum_of_slices(x, vmapped):
  """`lax.psum` over a vmapped axis, as a chain of additions.

  XLA's CPU backend would hand the reduction to a library that is slow on a leading axis. `python -m benchmarks choices` on
  2 cores, 8 workers as 2 devices x 4, the mean of an MLP of 2.3 M parameters: 65.4 ms with `lax.pmean`, 9.4 so, 13.9 if
  the tree becomes one flat vector first: XLA already combines the leaves into one all-reduce, and copying costs.
  """
  slices = lax.all_gather(x, vmapped)  # under vmap this is the whole array as it stands
  return functools.reduce(jnp.add, [slices[i] for i in range(len(slices))])


def widened(tree: Params) -> Params:
  """`tree` in float32 or wider.

  >>> widened({'x': jnp.ones(1, jnp.bfloat16), 'y': jnp.ones(1)})['x'].dtype
  dtype('float32')
  """
  return jax.tree.map(lambda x: x.astype(wide_dtype(x)), tree)


def wide_dtype(x: jax.Array) -> jnp.dtype:
  """`x`'s dtype, or float32 if that is narrower.

  >>> wide_dtype(jnp.ones(1, jnp.float16)), wide_dtype(jnp.ones(1))
  (dtype('float32'), dtype('float32'))
  """
  return x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.dtype(jnp.float32)


def cast_like(tree: Params, like: Params) -> Params:
  """`tree` with the dtypes of `like`.

  >>> cast_like({'x': jnp.ones(1)}, {'x': jnp.zeros(1, jnp.bfloat16)})['x'].dtype
  dtype(bfloat16)
  """
  return jax.tree.map(lambda x, l: x.astype(l.dtype), tree, like)


def no_correction(state: State) -> Any:
  """`correction` of an algorithm that takes the gradient as it is: None, which stands for zeros.

  >>> import vrl_jax
  >>> print(vrl_jax.local_sgd(optax.sgd(0.1)).correction(state=None))
  None
  """
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
