"""Convolution, 2 x 2 max-pool and ReLU as one matrix product, in the layout that XLA's CPU backend runs fastest.

Activations are in a space-to-depth layout, `[block, block, channels, rows, columns, batch]`: the image is divided into
blocks of block x block pixels, and pixel (p, q) of block (r, s) is at [p, q, :, r, s, :]. One product computes all
outputs of a block from the patch of pixels that they share:

- a patch is a few adjacent blocks, so gathering the patches takes a few long contiguous copies and
  (block + 4)^2 / 25 block^2 of the memory of one patch per pixel (conv 5 x 5; 16 % for block 4, 36 % for block 2);
- the product has block^2 times the rows, which makes up for the zeros in the expanded kernel: a 5 x 5 convolution from
  1 to 6 channels becomes a 96 x 64 matrix that multiplies all positions;
- the four outputs of a pooling window are in four contiguous arrays, so pooling is three `maximum`s;
- pooling blocks of 4 leaves blocks of 2, the layout of the next layer, so nothing is reordered between layers.

Two backward passes are written by hand, because autodiff's are slow on CPU: that of `max` splits ties in several passes
over memory, and that of `concatenate` sums padded copies. They support reverse mode only; use `conv_form='xla'` for
`jax.jvp`.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_CHEAP_IDENTITY = 128  # largest batch for which a product with the identity matrix costs next to nothing


def to_blocks(images: jax.Array, block: int) -> jax.Array:
  """Divides images `[batch, height, width, channels]` into blocks `[block, block, channels, rows, columns, batch]`.

  >>> to_blocks(jnp.zeros((8, 32, 32, 1)), block=4).shape  # eight images of 8 x 8 blocks
  (4, 4, 1, 8, 8, 8)
  """
  batch, height, width, channels = images.shape
  if height % block or width % block:
    raise ValueError(f'images of {height}x{width} are not divisible into {block}x{block} blocks; use conv_form="xla"')
  pixels = images.reshape(batch, -1)
  if batch <= _CHEAP_IDENTITY:
    # A transpose written as a product: XLA would fuse a plain one with the gather of the batch before it and the copies
    # of the patches after it, into one scalar loop that reads every pixel several times (7 % of a LeNet step).
    pixels = lax.dot_general(pixels, jnp.eye(batch, dtype=pixels.dtype), (((0,), (0,)), ((), ())))
  else:
    pixels = pixels.T
  pixels = pixels.reshape(height // block, block, width // block, block, channels, batch)
  return pixels.transpose(1, 3, 4, 0, 2, 5)


def from_blocks(x: jax.Array) -> jax.Array:
  """The inverse of `to_blocks`, flattened in NHWC order: `[batch, height * width * channels]`.

  >>> images = jnp.arange(32.0).reshape(2, 4, 4, 1)
  >>> bool((from_blocks(to_blocks(images, block=2)) == images.reshape(2, -1)).all())
  True
  """
  return x.transpose(5, 3, 0, 4, 1, 2).reshape(x.shape[-1], -1)


def conv_pool_relu(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
  """A VALID convolution, a 2 x 2 max-pool and ReLU on blocks.

  Args:
    x: blocks `[block, block, channels, rows, columns, batch]`, block even.
    kernel: `[n, n, channels, features]` with n - 1 a multiple of block.
    bias: `[features]`.

  Returns:
    Blocks `[block / 2, block / 2, features, rows', columns', batch]`.

  >>> images, kernel = jnp.ones((2, 6, 6, 1)), jnp.full((3, 3, 1, 1), 0.5)
  >>> blocks = conv_pool_relu(to_blocks(images, block=2), kernel, bias=jnp.array([-1.0]))
  >>> from_blocks(blocks).tolist()  # 9 pixels of 0.5 - 1
  [[3.5, 3.5, 3.5, 3.5], [3.5, 3.5, 3.5, 3.5]]
  """
  chex.assert_rank([x, kernel, bias], [6, 4, 1])
  block, _, channels, rows, columns, batch = x.shape
  chex.assert_axis_dimension(kernel, 2, channels)
  n, features = kernel.shape[0], kernel.shape[-1]
  if block % 2 or (n - 1) % block:
    raise ValueError(
      f'a {n}x{n} kernel does not fit blocks of {block}x{block}: n - 1 must be a multiple of an even block'
    )
  reach = 1 + (n - 1) // block  # a block of outputs reads reach x reach blocks
  rows, columns = rows - reach + 1, columns - reach + 1
  patches = _patches(x.reshape(block * block * channels, *x.shape[3:]), reach).reshape(-1, rows * columns * batch)
  outputs = lax.dot_general(_expand(kernel, block), patches, (((0,), (0,)), ((), ())))
  half = block // 2
  outputs = outputs.reshape(4, half * half, features, rows * columns * batch)
  return _pool_relu(outputs, bias[None, :, None]).reshape(half, half, features, rows, columns, batch)


def _expand(kernel, block):
  """The kernel as a matrix from a patch `[reach, reach, block, block, channels]` to `[2, 2, half, half, features]`."""
  n, _, channels, features = kernel.shape
  side, half = block + n - 1, block // 2
  pixel, output, i = np.ogrid[:side, :block, :n]
  reads = (pixel == output + i).astype(np.float32)  # output reads pixel through row i of the kernel
  both = np.einsum('pai,qbj->pqabij', reads, reads)
  both = both.reshape(side // block, block, side // block, block, half, 2, half, 2, n * n)
  both = both.transpose(0, 2, 1, 3, 5, 7, 4, 6, 8).reshape(-1, n * n)
  matrix = (jnp.asarray(both, kernel.dtype) @ kernel.reshape(n * n, -1)).reshape(
    side * side, block * block, channels, features
  )
  return matrix.transpose(0, 2, 1, 3).reshape(side * side * channels, block * block * features)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _patches(x, reach):
  """Stacks the reach x reach shifted views of `[channels, rows, columns, batch]` along the first axis."""
  rows, columns = x.shape[1] - reach + 1, x.shape[2] - reach + 1
  return jnp.concatenate([x[:, i : i + rows, j : j + columns] for i in range(reach) for j in range(reach)])


def _patches_backward(reach, _, grads):
  _, rows, columns, batch = grads.shape
  grads = grads.reshape(reach, reach, -1, rows, columns, batch)
  total = jnp.zeros((grads.shape[2], rows + reach - 1, columns + reach - 1, batch), grads.dtype)
  for i in range(reach):
    for j in range(reach):
      shifted = total[:, i : i + rows, j : j + columns] + grads[i, j]
      total = lax.dynamic_update_slice(total, shifted, (0, i, j, 0))  # in place, unlike a sum of padded copies
  return (total,)


_patches.defvjp(lambda x, reach: (_patches(x, reach), None), _patches_backward)


@jax.custom_vjp
def _pool_relu(x, bias):
  """The largest of x[0] ... x[3], plus the bias, through ReLU."""
  return jnp.maximum(_max4(x) + bias, 0)


def _max4(x):
  return jnp.maximum(jnp.maximum(x[0], x[1]), jnp.maximum(x[2], x[3]))


def _pool_relu_forward(x, bias):
  return _pool_relu(x, bias), (x, bias)


def _pool_relu_backward(residuals, grads):
  x, bias = residuals
  largest = _max4(x)
  grads = jnp.where(largest + bias > 0, grads, 0)
  to_x, free = [], None
  for candidate in x:  # the first of equals wins, as in XLA's own max-pool
    hit = candidate == largest
    to_x.append(jnp.where(hit if free is None else hit & free, grads, 0))
    free = ~hit if free is None else free & ~hit
  to_bias = grads.sum(axis=[axis for axis, size in enumerate(bias.shape) if size == 1], keepdims=True)
  return jnp.stack(to_x), to_bias


_pool_relu.defvjp(_pool_relu_forward, _pool_relu_backward)
