"""One mixing step between the workers: with all of them, or with the two neighbours on a ring."""

import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.algorithms.core.algorithm import Params
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AxisName, worker_axes
from vrl_jax.algorithms.core.precision import widened

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

  'complete' is the mean over all workers. On the 'ring', in the order of the workers, the weights are 1/2 for the
  worker itself and 1/4 for each neighbour; this W has no negative eigenvalues, as D² and EXTRA prefer. With two workers
  both neighbours are the other worker, whose values are sent once.

  >>> import jax, jax.numpy as jnp
  >>> jax.vmap(lambda x: mix('ring', x, 'w'), axis_name='w')(jnp.array([8.0, 0.0, 0.0, 0.0])).tolist()
  [4.0, 2.0, 0.0, 2.0]
  """
  if mixing == 'complete':
    return mean_over_workers(tree, axis_name)
  tree = widened(tree)
  left = shift(tree, 1, axis_name)
  right = left if lax.psum(1, worker_axes(axis_name)) == 2 else shift(tree, -1, axis_name)
  return jax.tree.map(lambda x, l, r: x / 2 + (l + r) / 4, tree, left, right)


def shift(tree: Params, by: int, axis_name: AxisName) -> Params:
  """The values of the worker `by` (1 or -1) places before this one, on the ring of all workers.

  With several axes the last one varies fastest, as in `lax.axis_index`. JAX permutes along one axis at a time: values
  shift along the last axis, and those that leave it at the edge shift along the axes before it.

  >>> jax.vmap(lambda x: shift(x, 1, 'w'), axis_name='w')(jnp.array([0.0, 1.0, 2.0, 3.0])).tolist()
  [3.0, 0.0, 1.0, 2.0]
  """
  names = worker_axes(axis_name)
  sizes = [lax.psum(1, name) for name in names]
  inner = max((i for i, size in enumerate(sizes) if size > 1), default=None)
  if inner is None:
    return tree
  size, name = sizes[inner], names[inner]
  around = lax.ppermute(tree, name, [(i, (i + by) % size) for i in range(size)])
  if max(sizes[:inner], default=1) == 1:
    return around
  place = lax.axis_index(name)
  # Only the edge moves along the other axes. A sum along `name` selects it; under vmap this sends nothing.
  last = place == (size - 1 if by == 1 else 0)
  edge = lax.psum(jax.tree.map(lambda x: jnp.where(last, x, jnp.zeros_like(x)), tree), name)
  edge = shift(edge, by, names[:inner])
  first = place == (0 if by == 1 else size - 1)
  return jax.tree.map(lambda e, x: jnp.where(first, e, x), edge, around)
