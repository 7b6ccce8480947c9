"""The mean over the workers."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.algorithms.core.algorithm import Params
from vrl_jax.algorithms.core.axes import AxisName, OnDevice, is_vmapped_over_explicit_axes, worker_axes
from vrl_jax.algorithms.core.precision import cast_like, widened
from vrl_jax.cpu.sum_of_slices import MAX_SLICES, sum_of_slices


def mean_over_workers(tree: Params, axis_name: AxisName) -> Params:
  """The mean of every leaf over the workers, in float32 or wider whatever the dtypes of the leaves.

  One all-reduce of the tree. Narrow types are widened before they are summed, so that deviations from the mean sum to
  zero over the workers.

  >>> import jax, jax.numpy as jnp
  >>> jax.vmap(lambda x: mean_over_workers(x, 'w'), axis_name='w')(jnp.array([1.0, 2.0, 6.0])).tolist()
  [3.0, 3.0, 3.0]
  """
  names = worker_axes(axis_name)
  on_device = tuple(name for name in names if isinstance(name, OnDevice) and lax.axis_size(name) <= MAX_SLICES)
  tree = widened(tree)
  for name in on_device:
    tree = jax.tree.map(functools.partial(sum_of_slices, axis_name=name), tree)
  if len(on_device) < len(names):
    tree = _psum(tree, tuple(name for name in names if name not in on_device))
  workers = lax.axis_size(names)
  return jax.tree.map(lambda x: x / workers, tree)


def _psum(tree, names):
  if is_vmapped_over_explicit_axes(names):
    # JAX 0.10 cannot batch psum there (it gives the sum the
    # sharding of the axis that it has removed).
    for name in names:
      tree = jax.tree.map(lambda x, name=name: jnp.sum(lax.all_gather(x, name), axis=0), tree)
    return tree
  return lax.psum(tree, names)


def mean_keeping_dtypes(tree: Params, axis_name: AxisName) -> Params:
  """:func:`mean_over_workers` with the dtypes of `tree`.

  >>> import jax, jax.numpy as jnp
  >>> mean = jax.vmap(lambda x: mean_keeping_dtypes(x, 'w'), axis_name='w')
  >>> mean(jnp.array([1.0, 2.0, 6.0], jnp.bfloat16))
  Array([3, 3, 3], dtype=bfloat16)
  """
  return cast_like(mean_over_workers(tree, axis_name), tree)
