"""Sums over the workers of one device."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

MAX_SLICES = 64


def sum_of_slices(x: jax.Array, axis_name: str) -> jax.Array:
  """`lax.psum` over a vmapped axis, as a chain of additions.

  XLA's CPU backend calls a library for the reduction that is slow along a leading axis. The mean of an MLP of 2.3 M
  parameters on 2 cores, 8 workers as 2 devices x 4 (`python -m benchmarks choices`): 65.4 ms with `lax.pmean`, 9.4 ms
  with this, 13.9 ms with this on a single flat vector, because of the copy (XLA already combines the leaves into one
  all-reduce).

  Args:
    x: one slice.
    axis_name: the vmapped axis; longer than MAX_SLICES it makes the program too long.

  >>> jax.vmap(lambda x: sum_of_slices(x, 'w'), axis_name='w')(jnp.array([1.0, 2.0, 6.0])).tolist()
  [9.0, 9.0, 9.0]
  """
  slices = lax.all_gather(x, axis_name)  # under vmap, no more than the batched array itself
  return functools.reduce(jnp.add, [slices[i] for i in range(len(slices))])
