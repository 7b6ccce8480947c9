"""How many workers of a device compute their gradients at once: as many as the cache holds, one group after another."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

_AT_ONCE = 4
_SMALL_MODEL = 2 << 20


def workers_at_once(platform: str, parameter_bytes: int, chosen: int | None = None) -> int | None:
  """The workers of a device that compute their gradients at once; None for all.

  LeNet, 64 workers on 2 CPU devices, microseconds for each worker's step on a busy machine, best of 5: 699 in groups of
  4, 698 of 2, 1,438 of 8, 2,070 all 32 at once. 8 workers on 2 devices, time relative to groups of 4: LeNet 1.07 and 1.17
  in groups of 2 and 1, TextCNN 0.95 and 0.91, the MLP, whose parameters would be copied, 1.39 and 3.83.
  These come from scratch scripts; `python -m benchmarks choices` is to measure
  them anew.

  Args:
    platform: such as 'cpu'.
    parameter_bytes: of one worker's model.
    chosen: a number to take instead; None chooses.

  >>> workers_at_once('cpu', 250_000), workers_at_once('cpu', 9_200_000), workers_at_once('gpu', 250_000)
  (4, None, None)
  """
  if chosen:
    return chosen
  return _AT_ONCE if platform == 'cpu' and parameter_bytes <= _SMALL_MODEL else None


def over_workers(fun: Callable[..., Any], platform: str, chosen: int | None = None) -> Callable[..., Any]:
  """`fun` of the parameters and more, which `jax.vmap` maps over the workers in groups of :func:`workers_at_once`.

  >>> import jax.numpy as jnp
  >>> square = over_workers(lambda x: x**2, 'cpu')
  >>> program = lambda workers: str(jax.make_jaxpr(jax.vmap(square))(jnp.ones(workers)))
  >>> 'scan' in program(16), 'scan' in program(4)  # four groups of four, or one
  (True, False)
  """

  def mapped(params, *args):
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(params))
    return in_groups(fun, workers_at_once(platform, size, chosen))(params, *args)

  return mapped


def in_groups(fun: Callable[..., Any], size: int | None) -> Callable[..., Any]:
  """`fun`, which `jax.vmap` maps in groups of `size`, one after another, instead of all at once.

  Args:
    fun: a function of arrays without collectives.
    size: of a group; None for no groups.

  >>> import jax.numpy as jnp
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
