"""Convolutions over several widths of word window, each with its maximum over time, as one matrix product.

XLA's CPU backend runs convolutions inside `lax.scan` slowly (see `convolution.choose_form`). Here the words become
`[channels, time, batch]`, the windows of the largest width are stacked into one matrix, the kernels of all widths,
padded with zeros to the largest, into another, and a single product gives every map at every position. The zeros add
28 % of arithmetic for widths 3, 4, 5 and still win: one large product instead of three, one stack of windows instead of
three.

The matrix of windows has a few more rows: one of ones, which the biases multiply, and one for each last position where
the narrow windows fit and the wide ones no longer do, which `_NEVER` multiplies for the wide ones so that the maximum
does not choose them.
"""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_NEVER = -1e30


def conv_max(words: jax.Array, layers: Sequence[tuple[jax.Array, jax.Array]]) -> jax.Array:
  """The maximum over time of VALID convolutions over time.

  Args:
    words: `[batch, time, channels]`.
    layers: pairs of a kernel `[width, channels, features]` and a bias `[features]`.

  Returns:
    `[batch, features of all layers]`, in the order of the layers.

  >>> words = jnp.array([[[1.0], [2.0], [3.0]]])  # one text of three words
  >>> layers = [(jnp.ones((width, 1, 1)), jnp.zeros(1)) for width in (1, 2)]
  >>> conv_max(words, layers).tolist()  # the largest word, the largest sum of two neighbours
  [[3.0, 5.0]]
  """
  chex.assert_rank(words, 3)
  batch, time, channels = words.shape
  for kernel, bias in layers:
    chex.assert_shape([kernel, bias], [(None, channels, None), (kernel.shape[-1],)])
  widths = [kernel.shape[0] for kernel, _ in layers]
  spare = max(widths) - min(widths)
  positions = time - min(widths) + 1
  words = jnp.pad(words.transpose(2, 1, 0), ((0, 0), (0, spare), (0, 0)))
  too_late = np.eye(spare, positions, positions - spare)
  extra = jnp.asarray(np.concatenate([np.ones((1, positions)), too_late]), words.dtype)
  extra = jnp.broadcast_to(extra[:, :, None], (1 + spare, positions, batch))
  stacked = jnp.concatenate([*(words[:, i : i + positions] for i in range(max(widths))), extra])
  maps = lax.dot_general(
    _matrix(layers, max(widths), spare), stacked.reshape(-1, positions * batch), (((0,), (0,)), ((), ()))
  )
  return _max_over_time(maps.reshape(-1, positions, batch)).T


def _matrix(layers, widest, spare):
  """All kernels, biases and exclusions as one matrix `[widest * channels + 1 + spare, features of all layers]`."""
  columns = []
  for kernel, bias in layers:
    width, channels, features = kernel.shape
    never = np.where(np.arange(spare) >= widest - width, _NEVER, 0)
    columns.append(
      jnp.concatenate(
        [
          jnp.pad(kernel.reshape(width * channels, features), ((0, (widest - width) * channels), (0, 0))),
          bias[None],
          jnp.broadcast_to(jnp.asarray(never, kernel.dtype)[:, None], (spare, features)),
        ]
      )
    )
  return jnp.concatenate(columns, axis=1)


@jax.custom_vjp
def _max_over_time(x):
  """The maximum over axis 1; its gradient is shared equally among equals, as that of `jnp.max`, in fewer passes."""
  return x.max(axis=1)


def _max_forward(x):
  largest = x.max(axis=1)
  return largest, (x, largest)


def _max_backward(residuals, grads):
  x, largest = residuals
  # A sum of slices and not a reduction, because the latter would first write its operand to memory.
  hits = [jnp.where(x[:, t] == largest, 1, 0).astype(x.dtype) for t in range(x.shape[1])]
  while len(hits) > 1:
    hits = [sum(hits[i + 1 : i + 2], hits[i]) for i in range(0, len(hits), 2)]
  return (jnp.where(x == largest[:, None], (grads / hits[0])[:, None], 0),)


_max_over_time.defvjp(_max_forward, _max_backward)
