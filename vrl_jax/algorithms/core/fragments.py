"""Fragments of a model: contiguous pieces of its concatenated leaves, of equal size."""

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from vrl_jax.algorithms.core.algorithm import Params

Pieces = list[Any]
"""One entry per leaf of the model: the part of the leaf that is in the fragment, flat, or None."""


def bounds(params: Params, fragments: int) -> list[list[tuple[int, int] | None]]:
  """For each fragment and each leaf, the first and last element (exclusive) of the leaf in the fragment, or None.

  >>> import jax.numpy as jnp
  >>> bounds({'kernel': jnp.zeros((2, 3)), 'bias': jnp.zeros(2)}, fragments=2)  # the leaves are bias and kernel
  [[(0, 2), (0, 2)], [None, (2, 6)]]
  """
  sizes = [x.size for x in jax.tree.leaves(params)]
  total = sum(sizes)
  if fragments > max(total, 1):
    raise ValueError(f'fragments={fragments}, must be at most the number of parameters, {total}')
  cuts = [total * f // fragments for f in range(fragments + 1)]
  out = []
  for first, last in zip(cuts, cuts[1:]):
    pieces: list[tuple[int, int] | None] = []
    offset = 0
    for size in sizes:
      start, stop = max(first - offset, 0), min(last - offset, size)
      pieces.append((start, stop) if start < stop else None)
      offset += size
    out.append(pieces)
  return out


def take(tree: Params, piece_bounds: Sequence[tuple[int, int] | None]) -> Pieces:
  """The pieces of one fragment; the leaves of `tree` have the sizes of the parameters.

  >>> import jax.numpy as jnp
  >>> take([jnp.arange(2), jnp.arange(6).reshape(2, 3)], [None, (2, 6)])
  [None, Array([2, 3, 4, 5], dtype=int32)]
  """
  leaves = jax.tree.leaves(tree)
  return [None if b is None else x.reshape(-1)[b[0] : b[1]] for x, b in zip(leaves, piece_bounds, strict=True)]


def put(tree: Params, piece_bounds: Sequence[tuple[int, int] | None], pieces: Pieces) -> Params:
  """`tree` with the pieces of one fragment.

  >>> import jax.numpy as jnp
  >>> put([jnp.zeros(2), jnp.zeros((2, 3))], [None, (2, 6)], [None, jnp.ones(4)])[1].tolist()
  [[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
  """
  leaves, structure = jax.tree.flatten(tree)
  out = [_put(x, b, piece) for x, b, piece in zip(leaves, piece_bounds, pieces, strict=True)]
  return jax.tree.unflatten(structure, out)


def _put(x, piece_bounds, piece):
  if piece_bounds is None:
    return x
  piece = piece.astype(x.dtype)
  if piece_bounds == (0, x.size):
    return piece.reshape(x.shape)
  return lax.dynamic_update_slice_in_dim(x.reshape(-1), piece, piece_bounds[0], axis=0).reshape(x.shape)


def take_number(tree: Params, fragment: int, piece_bounds: Sequence[tuple[int, int] | None]) -> Pieces:
  """Like `take`, of a tree with one number per fragment and leaf, [fragments, 1, ...].

  >>> import jax.numpy as jnp
  >>> take_number([jnp.array([3.0, 4.0]), jnp.array([[[5.0]], [[6.0]]])], 1, [None, (2, 6)])
  [None, Array([6.], dtype=float32)]
  """
  leaves = jax.tree.leaves(tree)
  return [None if b is None else x[fragment].reshape(1) for x, b in zip(leaves, piece_bounds, strict=True)]


def put_number(tree: Params, fragment: int, pieces: Pieces) -> Params:
  """Like `put`, of a tree with one number per fragment and leaf.

  >>> import jax.numpy as jnp
  >>> put_number([jnp.zeros(2), jnp.zeros((2, 1))], 1, [None, jnp.ones(1)])[1].tolist()
  [[0.0], [1.0]]
  """
  leaves, structure = jax.tree.flatten(tree)
  pieces = [x if p is None else x.at[fragment].set(p.reshape(x.shape[1:])) for x, p in zip(leaves, pieces, strict=True)]
  return jax.tree.unflatten(structure, pieces)
