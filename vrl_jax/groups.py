"""The order in which the workers of a device compute, so that what they work on is in the cache."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
from jax import lax

_LARGE_MODEL = 2 << 20
_CACHED = 3 << 20


def workers_at_once(platform: str, parameter_bytes: int, largest_bytes: int, chosen: int | None = None) -> int | None:
  """The workers of a device that compute their gradients at once; None for all.

  On CPU: as many as keep the largest array of the gradient below 3 MB, but all of them if the model is so large that
  copying its parameters into groups costs more.

  `python -m benchmarks choices` on 2 cores, k = 5, time relative to the choice: LeNet, 64 workers on 2 devices, groups of
  4 chosen: 0.98 in groups of 2, 1.16 of 8, 1.47 all 32 at once; TextCNN, 8 workers, groups of 1 chosen: 1.63 in groups of
  2, 2.28 of 4. An MLP of 2.3 M parameters, 8 workers, k = 20, examples per second: 19,941 all four at once, 15,633 in
  groups of 2, 5,476 of 1.

  Args:
    platform: such as 'cpu'.
    parameter_bytes: of one worker's model.
    largest_bytes: of the largest array in the gradient of one worker's mini-batch.
    chosen: a number to take instead; None chooses.

  >>> lenet, textcnn, mlp = (250_000, 691_200), (257_000, 7_372_800), (9_200_000, 8_388_608)
  >>> workers_at_once('cpu', *lenet), workers_at_once('cpu', *textcnn), workers_at_once('cpu', *mlp)
  (4, 1, None)
  >>> print(workers_at_once('gpu', *lenet))
  None
  """
  if chosen:
    return chosen
  if platform != 'cpu' or parameter_bytes > _LARGE_MODEL:
    return None
  return max(1, _CACHED // max(1, largest_bytes))


def over_workers(fun: Callable[..., Any], platform: str, chosen: int | None = None) -> Callable[..., Any]:
  """`fun` of the parameters and more, which `jax.vmap` maps over the workers in groups of :func:`workers_at_once`.

  >>> square = over_workers(lambda x: x**2, 'cpu')
  >>> program = lambda workers: str(jax.make_jaxpr(jax.vmap(square))(jnp.ones((workers, 100_000))))
  >>> 'scan' in program(16), 'scan' in program(4)  # groups of seven, or one
  (True, False)
  """

  def mapped(params, *args):
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (params, *args))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(params))
    largest = 0 if chosen else _largest_bytes(jax.make_jaxpr(fun)(*shapes).jaxpr)
    return in_groups(fun, workers_at_once(platform, size, largest, chosen))(params, *args)

  return mapped


def _largest_bytes(jaxpr):
  """Of the arrays that a program computes."""
  own = [v.aval.size * v.aval.dtype.itemsize for equation in jaxpr.eqns for v in equation.outvars]
  inner = [_largest_bytes(sub) for e in jaxpr.eqns for sub in jax.extend.core.jaxprs_in_params(e.params)]
  return max(own + inner, default=0)


def one_after_another(
  period: Callable[..., Any], platform: str, chosen: int | None = None, alone: Callable[..., Any] | None = None
) -> Callable[..., Any]:
  """A period of local steps, `(state, *args) -> state`, which `jax.vmap` maps over the workers one after another.

  Each worker of a device then takes all its steps while its model is in the cache. That is for large models on CPU:
  `python -m benchmarks choices` on 2 cores, an MLP of 2.3 M parameters, 8 workers on 2 devices, k = 20: stepping together
  takes 1.43 of the time.
  Small models leave it to :func:`over_workers`, and where a step communicates, all workers must take it together.

  Args:
    period: the local steps.
    platform: such as 'cpu'.
    chosen: the workers at once that somebody chose, for whom `period` stays as it is.
    alone: the same period in a form that is faster for a worker that has a device to itself.

  >>> halved = one_after_another(lambda x: x / 2, 'cpu')
  >>> program = lambda size: str(jax.make_jaxpr(jax.vmap(halved))(jnp.ones((4, size))))
  >>> 'scan' in program(1_000_000), 'scan' in program(1_000)
  (True, False)
  """

  @jax.custom_batching.custom_vmap
  def taking_turns(state, *args):
    return period(state, *args)

  @taking_turns.def_vmap
  def _(axis_size, in_batched, state, *args):
    state = jax.tree.map(lambda x, own: x if own else jnp.broadcast_to(x, (axis_size, *x.shape)), state, in_batched[0])

    def turn(i, state):
      own = [jax.tree.map(lambda x, own: x[i] if own else x, *pair) for pair in zip(args, in_batched[1:])]
      before = jax.tree.map(lambda x: x[i], state)
      return jax.tree.map(functools.partial(put, i), state, before, (alone or period)(before, *own))

    def put(i, all, before, after):
      # What a period leaves as it is, such as Δ, is not written back: XLA would copy all workers' of it, in every turn.
      return all if after is before else lax.dynamic_update_index_in_dim(all, after, i, 0)

    return lax.fori_loop(0, axis_size, turn, state), jax.tree.map(lambda _: True, state)

  def mapped(state, *args):
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    if chosen or platform != 'cpu' or size <= _LARGE_MODEL or _communicates(jax.make_jaxpr(period)(state, *args).jaxpr):
      return period(state, *args)
    return taking_turns(state, *args)

  return mapped


def _communicates(jaxpr):
  """Whether a program looks beyond its own worker."""
  return any(
    'axis_name' in equation.params
    or equation.primitive.name.startswith('psum')
    or any(_communicates(sub) for sub in jax.extend.core.jaxprs_in_params(equation.params))
    for equation in jaxpr.eqns
  )


def in_groups(fun: Callable[..., Any], size: int | None) -> Callable[..., Any]:
  """`fun`, which `jax.vmap` maps in groups of `size`, one after another, instead of all at once.

  Args:
    fun: a function of arrays without collectives.
    size: of a group; None for no groups.

  >>> jax.vmap(in_groups(lambda x, y: x * y, 2), (0, None))(jnp.arange(5.0), 3.0).tolist()
  [0.0, 3.0, 6.0, 9.0, 12.0]
  """
  if size is None:
    return fun
  grouped = jax.custom_batching.custom_vmap(fun)

  @grouped.def_vmap
  def _(axis_size, in_batched, *args):
    leaves, structure = jax.tree.flatten(args)
    mapped = jax.tree.leaves(in_batched)

    def one(own):
      own = iter(own)
      return fun(*structure.unflatten([next(own) if m else x for x, m in zip(leaves, mapped)]))

    own = [x for x, m in zip(leaves, mapped) if m]
    out = jax.vmap(one)(own) if axis_size <= size else lax.map(one, own, batch_size=size)
    return out, jax.tree.map(lambda _: True, out)

  return grouped
