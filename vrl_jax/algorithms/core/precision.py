"""Copies and dtypes of trees: means and corrections are float32 or wider, whatever the dtypes of the parameters."""

import jax
import jax.numpy as jnp

from vrl_jax.algorithms.core.algorithm import Params


def wide_dtype(x: jax.Array) -> jnp.dtype:
  """`x`'s dtype, or float32 if that is narrower.

  >>> wide_dtype(jnp.ones(1, jnp.float16)), wide_dtype(jnp.ones(1))
  (dtype('float32'), dtype('float32'))
  """
  return x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.dtype(jnp.float32)


def widened(tree: Params) -> Params:
  """`tree` in float32 or wider.

  >>> widened({'x': jnp.ones(1, jnp.bfloat16), 'y': jnp.ones(1)})['x'].dtype
  dtype('float32')
  """
  return jax.tree.map(lambda x: x.astype(wide_dtype(x)), tree)


def copied(tree: Params) -> Params:
  """A copy of `tree`, so that a state that starts as the parameters can be donated together with them.

  >>> x = jnp.ones(2)
  >>> copied(x).unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
  False
  """
  return jax.tree.map(jnp.copy, tree)


def wide_zeros(tree: Params) -> Params:
  """Zeros with the shapes of `tree`, in float32 or wider.

  >>> wide_zeros(jnp.ones(2, jnp.bfloat16))
  Array([0., 0.], dtype=float32)
  """
  return jax.tree.map(lambda x: jnp.zeros_like(x, wide_dtype(x)), tree)


def cast_like(tree: Params, like: Params) -> Params:
  """`tree` with the dtypes of `like`.

  >>> cast_like({'x': jnp.ones(1)}, {'x': jnp.zeros(1, jnp.bfloat16)})['x'].dtype
  dtype(bfloat16)
  """
  return jax.tree.map(lambda x, l: x.astype(l.dtype), tree, like)


def subtract_correction(grads: Params, correction: Params) -> Params:
  """`grads - correction`, computed in the dtypes of the correction and returned in those of the gradients.

  >>> subtract_correction(jnp.ones(2, jnp.bfloat16), jnp.array([0.25, 0.5]))
  Array([0.75, 0.5], dtype=bfloat16)
  """
  return jax.tree.map(lambda g, c: (g.astype(c.dtype) - c).astype(g.dtype), grads, correction)
