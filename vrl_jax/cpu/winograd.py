"""Text convolutions of several widths with max-over-time pooling, as matrix products by minimal filtering (Winograd).

XLA's CPU backend runs convolutions inside `lax.scan` slowly (see `vrl_jax.cpu.conv_form`), so they are
computed as products here. A tile of m neighbouring outputs y of a filter k with r taps reads m + r - 1 inputs d, and

    y = A^T [(G k) * (B^T d)]

takes m + r - 1 products, one per interpolation point, instead of m r. Summed over the channels, the products of a point
are a matrix product. For r = 5 and tiles of 4 outputs that is 2 products per output instead of 5. A filter with fewer
taps is padded with zeros, which costs no more than its plain sum would. The rounding errors are about 7 times those of
plain sums (4e-6 of the standard deviation of the feature maps in float32).

The backward pass of the maximum is written by hand, because autodiff's is slow on CPU: it sums padded copies. It
supports reverse mode only; use `conv_form='xla'` for `jax.jvp`.

References:
  Lavin and Gray, `Fast Algorithms for Convolutional Neural Networks <https://arxiv.org/abs/1509.09308>`_, 2015
"""

import functools
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_POINTS = (0, 1, -1, 2, -2, 0.5, -0.5)  # and infinity; more points would lose too much precision
_TILE = 4
_MASKED = -1e30


def conv_max(words: jax.Array, layers: Sequence[tuple[jax.Array, jax.Array]]) -> jax.Array:
  """VALID convolutions over time, each followed by the maximum over time.

  Args:
    words: `[batch, time, channels]`.
    layers: pairs of a kernel `[width, channels, features]` and a bias `[features]`.

  Returns:
    `[batch, features of all layers]`, in the order of the layers.

  >>> words = jnp.array([[[1.0], [2.0], [3.0]]])  # one text of three words
  >>> layers = [(jnp.ones((width, 1, 1)), jnp.zeros(1)) for width in (1, 2)]
  >>> conv_max(words, layers).round(5).tolist()  # the largest word, the largest sum of two adjacent words
  [[3.0, 5.0]]
  """
  chex.assert_rank(words, 3)
  batch, time, channels = words.shape
  for kernel, bias in layers:
    chex.assert_shape([kernel, bias], [(None, channels, None), (kernel.shape[-1],)])
  widths = [kernel.shape[0] for kernel, _ in layers]
  taps = max(widths)
  tile = _TILE if _TILE + taps - 2 <= len(_POINTS) else 1
  _, of_kernel, of_words = minimal_filter(tile, taps)
  tiles = -(-(time - min(widths) + 1) // tile)

  overlap = -(-(taps - 1) // tile)  # a tile of outputs reads its own words and those of the next `overlap` tiles
  words = jnp.pad(words.transpose(2, 1, 0), ((0, 0), (0, (tiles + overlap) * tile - time), (0, 0)))
  words = words.reshape(channels, tiles + overlap, tile, batch)
  shifted = [words[:, s // tile : s // tile + tiles, s % tile] for s in range(tile + taps - 1)]
  inputs = jnp.stack([_linear_combination(row, shifted) for row in of_words]).reshape(-1, channels, tiles * batch)
  kernels = [jnp.einsum('pj,jcf->pfc', of_kernel[:, : len(k)].astype(k.dtype), k) for k, _ in layers]
  products = lax.dot_general(jnp.concatenate(kernels, axis=1), inputs, (((2,), (1,)), ((0,), (0,))))

  position = np.arange(tiles) * tile + np.arange(tile)[:, None]
  masks = [np.where(position > time - width, _MASKED, 0) for width in widths]  # outputs beyond the end of the text
  mask = np.repeat(masks, [kernel.shape[-1] for kernel, _ in layers], axis=0)[..., None]
  products = products.reshape(*products.shape[:2], tiles, batch)
  largest = _max_over_time(products, jnp.asarray(mask, words.dtype), tile, taps)
  return largest.T + jnp.concatenate([bias for _, bias in layers])[None]


def minimal_filter(tile: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The matrices A^T, G and B^T for `tile` outputs of a filter with `taps` taps; the points are their common axis.

  >>> to_outputs, of_kernel, of_inputs = minimal_filter(tile=2, taps=3)  # 4 products instead of 6
  >>> kernel, inputs = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 5.0])
  >>> (to_outputs @ ((of_kernel @ kernel) * (of_inputs @ inputs))).round(6).tolist()
  [7.0, 19.0]
  """
  count = tile + taps - 1
  if tile == 1:
    return np.ones((1, count)), np.eye(count), np.eye(count)

  def values(length):
    """The matrix from coefficients of a polynomial to its values at the points; at infinity, the last coefficient."""
    return np.vstack([np.power.outer(np.array(_POINTS[: count - 1]), np.arange(length)), np.eye(length)[-1:]])

  # The product of polynomials is a convolution: a k = V^-1 [(V a) * (V k)]. Its transpose with respect to a is y.
  of_kernel = values(taps)
  scale = np.abs(of_kernel).max(axis=1, keepdims=True)  # either matrix can take a row's factor; this is more precise
  return values(tile).T, of_kernel / scale, np.linalg.inv(values(count)).T * scale


def _linear_combination(coefficients, arrays):
  """Skips zero coefficients."""
  terms = [x if c == 1 else np.asarray(c, x.dtype) * x for c, x in zip(coefficients, arrays) if c]
  return functools.reduce(jnp.add, terms)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _max_over_time(products, mask, tile, taps):
  """From the products at the points, `[points, features, tiles, batch]`, to the largest outputs `[features, batch]`.

  `mask` `[features, tile, tiles, 1]` is added to the outputs. Equal maxima share the gradient equally, as with
  `jnp.max`.
  """
  return _max_forward(products, mask, tile, taps)[0]


def _max_forward(products, mask, tile, taps):
  to_outputs, _, _ = minimal_filter(tile, taps)
  outputs = jnp.stack([_linear_combination(row, products) for row in to_outputs], axis=1) + mask
  largest = outputs.max(axis=(1, 2))
  return largest, (outputs, largest)


def _max_backward(tile, taps, residuals, grads):
  outputs, largest = residuals
  # A sum of slices, because a reduction would first write its operand to memory.
  hits = [jnp.where(outputs[:, i, t] == largest, 1, 0) for i in range(tile) for t in range(outputs.shape[2])]
  while len(hits) > 1:
    hits = [sum(hits[i + 1 : i + 2], hits[i]) for i in range(0, len(hits), 2)]
  grads = (grads / hits[0].astype(grads.dtype))[:, None]
  to_outputs, _, _ = minimal_filter(tile, taps)
  to_each = [jnp.where(outputs[:, i] == largest[:, None], grads, 0) for i in range(tile)]
  return jnp.stack([_linear_combination(column, to_each) for column in to_outputs.T]), None


_max_over_time.defvjp(_max_forward, _max_backward)
