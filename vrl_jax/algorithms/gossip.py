"""One step of mixing among the workers: with all of them, or with the two neighbours on a ring."""

import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.algorithms.base import AxisName, Params, mean_over_workers, widened

MIXINGS = ('ring', 'complete')


def check_mixing(mixing: str) -> str:
  """Returns `mixing` if it is one of `MIXINGS`, else raises ValueError.

  >>> check_mixing('ring')
  'ring'
  >>> check_mixing('star')
  Traceback (most recent call last):
    ...
  ValueError: mixing='star', must be one of ring, complete
  """
  if mixing not in MIXINGS:
    raise ValueError(f'mixing={mixing!r}, must be one of {", ".join(MIXINGS)}')
  return mixing


def mix(mixing: str, tree: Params, axis_name: AxisName) -> Params:
  """Σ_j W_ij x_j: this worker's row of the mixing matrix, in float32 or wider.

  'complete' is the mean over all workers. On the 'ring' a worker keeps 1/2 and takes 1/4 from each neighbour, in the
  order of the workers; that W has no negative eigenvalue, which D² and EXTRA like.

  >>> import jax, jax.numpy as jnp
  >>> jax.vmap(lambda x: mix('ring', x, 'w'), axis_name='w')(jnp.array([8.0, 0.0, 0.0, 0.0])).tolist()
  [4.0, 2.0, 0.0, 2.0]
  """
  if mixing == 'complete':
    return mean_over_workers(tree, axis_name)
  tree = widened(tree)
  left, right = shift(tree, 1, axis_name), shift(tree, -1, axis_name)
  return jax.tree.map(lambda x, l, r: x / 2 + (l + r) / 4, tree, left, right)


def shift(tree: Params, by: int, axis_name: AxisName) -> Params:
  """The values of the worker `by` (1 or -1) places before this one, around the ring of all workers.

  Of several axes the last varies fastest, as in `lax.axis_index`. JAX permutes along one axis at a time: the workers
  shift along the last axis, and the one at its edge takes its value from the next ring of the axes before it.

  >>> jax.vmap(lambda x: shift(x, 1, 'w'), axis_name='w')(jnp.array([0.0, 1.0, 2.0, 3.0])).tolist()
  [3.0, 0.0, 1.0, 2.0]
  """
  names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
  sizes = [lax.psum(1, name) for name in names]
  inner = max((i for i, size in enumerate(sizes) if size > 1), default=None)
  if inner is None:
    return tree
  size, name = sizes[inner], names[inner]
  around = lax.ppermute(tree, name, [(i, (i + by) % size) for i in range(size)])
  if max(sizes[:inner], default=1) == 1:
    return around
  place = lax.axis_index(name)
  # Only the edge goes on to the other axes: a sum along `name` picks it, which is no traffic where `name` is a vmap.
  last = place == (size - 1 if by == 1 else 0)
  edge = lax.psum(jax.tree.map(lambda x: jnp.where(last, x, jnp.zeros_like(x)), tree), name)
  edge = shift(edge, by, names[:inner])
  first = place == (0 if by == 1 else size - 1)
  return jax.tree.map(lambda e, x: jnp.where(first, e, x), edge, around)
