"""The order in which the workers of a device compute, so that their arrays stay in the cache."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.jaxprs import jaxprs_in

_LARGE_MODEL = 2 << 20
_CACHED = 3 << 20


def workers_at_once(platform: str, parameter_bytes: int, largest_bytes: int, override: int | None = None) -> int | None:
  """The number of workers of a device that compute their gradients together; None for all.

  On CPU: as many as keep the largest array of the gradient below 3 MB, but all of them if the model is so large that
  copying its parameters into groups costs more.

  `python -m benchmarks choices` on 2 cores, k = 5, time relative to the choice: LeNet, 64 workers on 2 devices, groups
  of 4 chosen: 0.98 in groups of 2, 1.16 of 8, 1.47 all 32 at once; TextCNN, 8 workers, groups of 1 chosen: 1.63 in
  groups of 2, 2.28 of 4. An MLP of 2.3 M parameters, 8 workers, k = 20, examples per second: 19,941 all four at once,
  15,633 in groups of 2, 5,476 of 1.

  Args:
    platform: such as 'cpu'.
    parameter_bytes: of one worker's model.
    largest_bytes: of the largest array in the gradient of one worker's mini-batch.
    override: a number to use instead; None chooses.

  >>> lenet, textcnn, mlp = (250_000, 691_200), (257_000, 7_372_800), (9_200_000, 8_388_608)
  >>> workers_at_once('cpu', *lenet), workers_at_once('cpu', *textcnn), workers_at_once('cpu', *mlp)
  (4, 1, None)
  >>> print(workers_at_once('gpu', *lenet))
  None
  """
  if override:
    return override
  if platform != 'cpu' or parameter_bytes > _LARGE_MODEL:
    return None
  return max(1, _CACHED // max(1, largest_bytes))


def vmap_in_groups(fun: Callable[..., Any], size: int | None) -> Callable[..., Any]:
  """Makes `jax.vmap` of `fun` process `size` workers at a time.

  Args:
    fun: a function of arrays without collectives.
    size: of a group; None for no groups.

  >>> jax.vmap(vmap_in_groups(lambda x, y: x * y, 2), (0, None))(jnp.arange(5.0), 3.0).tolist()
  [0.0, 3.0, 6.0, 9.0, 12.0]
  """
  if size is None:
    return fun
  grouped = jax.custom_batching.custom_vmap(fun)

  @grouped.def_vmap
  def _(axis_size, in_batched, *args):
    leaves, structure = jax.tree.flatten(args)
    is_batched = jax.tree.leaves(in_batched)

    def one(batched):
      batched = iter(batched)
      one_args = [next(batched) if b else x for x, b in zip(leaves, is_batched)]
      return fun(*jax.tree.unflatten(structure, one_args))

    batched = [x for x, b in zip(leaves, is_batched) if b]
    out = jax.vmap(one)(batched) if axis_size <= size else lax.map(one, batched, batch_size=size)
    return out, jax.tree.map(lambda _: True, out)

  return grouped


def group_workers(gradient: Callable[..., Any], platform: str, override: int | None = None) -> Callable[..., Any]:
  """Makes `jax.vmap` of `gradient` process :func:`workers_at_once` workers at a time.

  Args:
    gradient: a function of the parameters and more, without collectives.
    platform: such as 'cpu'.
    override: the size of a group; None chooses.

  >>> square = group_workers(lambda x: x**2, 'cpu')
  >>> program = lambda workers: str(jax.make_jaxpr(jax.vmap(square))(jnp.ones((workers, 100_000))))
  >>> 'scan' in program(16), 'scan' in program(4)  # groups of seven, or one
  (True, False)
  """

  def grouped(params, *args):
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (params, *args))
    largest = 0 if override else _largest_bytes(jax.make_jaxpr(gradient)(*shapes).jaxpr)
    return vmap_in_groups(gradient, workers_at_once(platform, _bytes(params), largest, override))(params, *args)

  return grouped


def serialize_workers(
  period: Callable[..., Any],
  platform: str,
  workers_at_once: int | None = None,
  single_worker_period: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
  """A period of local steps, `(state, *args) -> state`, which `jax.vmap` maps over the workers one after the other.

  Each worker of a device then takes all steps of the period while its model is in the cache. This is for large models
  on CPU: `python -m benchmarks choices` on 2 cores, an MLP of 2.3 M parameters, 8 workers on 2 devices, k = 20:
  stepping together takes 1.43 of the time. For small models :func:`group_workers` is faster, and where a step
  communicates, all workers must take it together; `period` is then returned as it is.

  Args:
    period: the local steps.
    platform: such as 'cpu'.
    workers_at_once: the user's choice of group size, which leaves `period` as it is; None chooses.
    single_worker_period: the same period in a form that is faster for one worker at a time; None is `period`.

  >>> halved = serialize_workers(lambda x: x / 2, 'cpu')
  >>> program = lambda size: str(jax.make_jaxpr(jax.vmap(halved))(jnp.ones((4, size))))
  >>> 'scan' in program(1_000_000), 'scan' in program(1_000)
  (True, False)
  """

  @jax.custom_batching.custom_vmap
  def serial(state, *args):
    return period(state, *args)

  @serial.def_vmap
  def _(axis_size, in_batched, state, *args):
    state = jax.tree.map(lambda x, b: x if b else jnp.broadcast_to(x, (axis_size, *x.shape)), state, in_batched[0])

    def run_worker(i, state):
      worker_args = [jax.tree.map(lambda x, b: x[i] if b else x, *pair) for pair in zip(args, in_batched[1:])]
      before = jax.tree.map(lambda x: x[i], state)
      after = (single_worker_period or period)(before, *worker_args)
      return jax.tree.map(functools.partial(write_back, i), state, before, after)

    def write_back(i, all_workers, before, after):
      # What a period does not change, such as Δ, is not written back: XLA would copy it for all workers, once for each.
      return all_workers if after is before else lax.dynamic_update_index_in_dim(all_workers, after, i, 0)

    return lax.fori_loop(0, axis_size, run_worker, state), jax.tree.map(lambda _: True, state)

  def chosen(state, *args):
    if workers_at_once or platform != 'cpu' or _bytes(state) <= _LARGE_MODEL:
      return period(state, *args)
    if _communicates(jax.make_jaxpr(period)(state, *args).jaxpr):
      return period(state, *args)
    return serial(state, *args)

  return chosen


def _bytes(tree):
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _largest_bytes(jaxpr):
  """The size of the largest array that a program computes."""
  here = [v.aval.size * v.aval.dtype.itemsize for equation in jaxpr.eqns for v in equation.outvars]
  inside = [_largest_bytes(sub) for e in jaxpr.eqns for sub in jaxprs_in(e)]
  return max(here + inside, default=0)


def _communicates(jaxpr):
  """Whether a program has collectives, or reads its position along an axis."""
  return any(
    'axis_name' in equation.params
    or equation.primitive.name.startswith('psum')
    or any(_communicates(sub) for sub in jaxprs_in(equation))
    for equation in jaxpr.eqns
  )
