r"""The mean over the workers with few bits per number: encoded shards, exchanged, averaged, encoded again and gathered.

A vector t_i of each worker is divided into N shards, one for each worker, and a shard into blocks. A block is encoded as
one float32, its scale, and a small integer for each number, which is rounded to the nearest (ties to even). With 16 bits
every number is a bfloat16, and there are no scales.

1. Every worker encodes t_i and sends shard j to worker j (`lax.all_to_all`).
2. Worker j decodes the N encodings of its shard and averages them.
3. It encodes the mean and sends it to all workers (`lax.all_gather`), which decode the same bytes.

A worker sends 2(N−1)/N times its encoded vector, like a ring all-reduce. The second rounding is accounted to worker j:
what it contributed in effect is its encoded shard plus N times the error of the mean. So the mean of the
contributions q_i is exactly the decoded result, and whatever a worker did not contribute, t_i − q_i, is its own
to send next time.

The encodings belong to the workers, not to the devices: several workers on a device send their encodings separately, so
that the result does not depend on where the workers are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.algorithms.core.automatic_axes import divisor, on_parts
from vrl_jax.algorithms.core.axes import AxisName, is_vmapped_over_explicit_axes, worker_axes

BITS = (4, 8, 16)
SCALE_BYTES = 4


class Quantiser(NamedTuple):
  """An encoding.

  Attributes:
    bits: per number: 4 or 8 for integers, 16 for bfloat16.
    block: the maximal number of integers that share a scale.
    error_feedback: whether a worker adds what it did not contribute to what it sends next time.

  >>> Quantiser(bits=4).shard(1000, workers=4)  # 250 numbers in one block
  (1, 250)
  >>> Quantiser(bits=4).shard(10_000, workers=4)  # 2,500 in ten blocks
  (10, 250)
  """

  bits: int
  block: int = 256
  error_feedback: bool = True

  @property
  def levels(self) -> int:
    """The largest integer of the encoding: 7 or 127."""
    return 2 ** (self.bits - 1) - 1

  def shard(self, size: int, workers: int) -> tuple[int, int]:
    """The shape of a shard of a vector of `size` numbers: blocks, and numbers per block (an even number)."""
    numbers = -(-size // workers)
    blocks = -(-numbers // self.block)
    per_block = -(-numbers // blocks)
    return blocks, per_block + per_block % 2


def quantised_mean(vector: jax.Array, quantiser: Quantiser, axis_name: AxisName) -> tuple[jax.Array, jax.Array]:
  """The mean over the workers of a vector, encoded.

  Args:
    vector: t_i, flat, float32 or wider.
    quantiser: the encoding.
    axis_name: the workers' axis.

  Returns:
    q_i, what this worker contributed, and the mean of the q_i, bitwise equal on all workers.

  Two workers with shards of two numbers in 4 bits: the scales of the first worker are 1 and 1, and 3.4 is rounded to 3. The
  mean of the second shard, (14, 4.5), has the scale 2, and 4.5 is rounded to 4; the second worker, which owns this shard,
  contributed twice the difference.

  >>> import numpy as np
  >>> t = jnp.array([[7.0, 3.4, 7.0, 0.0], [14.0, 6.0, 21.0, 8.0]])
  >>> q, mean = jax.vmap(lambda x: quantised_mean(x, Quantiser(bits=4, block=2), 'w'), axis_name='w')(t)
  >>> np.asarray(mean, float).round(3).tolist()
  [[10.5, 4.5, 14.0, 4.0], [10.5, 4.5, 14.0, 4.0]]
  >>> np.asarray(q, float).round(3).tolist()
  [[7.0, 3.0, 7.0, 0.0], [14.0, 6.0, 21.0, 8.0]]
  """
  names = worker_axes(axis_name)
  if is_vmapped_over_explicit_axes(names):
    raise ValueError(
      'quantised under jax.vmap on a mesh with Explicit axes is not possible, as JAX cannot batch all_to_all there: '
      'use jax.shard_map, or a mesh with AxisType.Auto'
    )
  workers = lax.axis_size(names)
  shape = (workers, *quantiser.shard(vector.size, workers))
  padded = jnp.zeros(shape, vector.dtype).reshape(-1).at[: vector.size].set(vector).reshape(shape)
  padded = jnp.pad(padded, ((0, 0), (0, -shape[1] % divisor(names)), (0, 0)))
  worker = lax.axis_index(names)
  # Under vmap, JAX's all_to_all fails for an operand that is the same on all workers, such as zeros.
  encoded = encode(padded, quantiser)
  encoded = encoded | (0 * worker).astype(encoded.dtype)
  contributed = decode(encoded, quantiser, vector.dtype)
  exchange = on_parts(lambda shards: _exchange(shards, names), names, 1, 1)
  received = decode(exchange(encoded), quantiser, vector.dtype)
  mean_of_shard = received.sum(axis=0) / workers
  encoded_mean = encode(mean_of_shard, quantiser)
  lost = decode(encoded_mean, quantiser, vector.dtype) - mean_of_shard
  is_own = (jnp.arange(workers, dtype=worker.dtype) == worker).reshape(workers, 1, 1)
  contributed = contributed + jnp.where(is_own, workers * lost, 0)
  gather = on_parts(lambda shard: _gather(shard, names), names, 0, 1)
  mean = decode(gather(encoded_mean), quantiser, vector.dtype)
  flat = lambda x: x[:, : shape[1]].reshape(-1)[: vector.size]
  return flat(contributed), flat(mean)


def encode(x: jax.Array, quantiser: Quantiser) -> jax.Array:
  """Blocks [..., numbers] as bytes [..., bytes]: the integers, two in a byte with 4 bits, then the scale.

  With 16 bits it is the bits of the bfloat16s, one uint16 each: XLA's CPU backend would send a bfloat16 as float32.

  >>> encode(jnp.array([7.0, -2.0]), Quantiser(bits=8)).tolist()[:2]  # 127 and -36 = 220 - 256
  [127, 220]
  >>> encode(jnp.array([7.0, -2.0]), Quantiser(bits=4)).tolist()[:1]  # 7 + 16 (16 - 2)
  [231]
  >>> encode(jnp.array([1.0, -2.0]), Quantiser(bits=16)).tolist() == [0x3F80, 0xC000]
  True
  """
  if quantiser.bits == 16:
    # XLA may remove a conversion to bfloat16 and back, and with it the rounding; this one it keeps.
    rounded = lax.reduce_precision(x.astype(jnp.float32), exponent_bits=8, mantissa_bits=7)
    return lax.bitcast_convert_type(rounded.astype(jnp.bfloat16), jnp.uint16)
  scale = (jnp.max(jnp.abs(x), axis=-1, keepdims=True) / quantiser.levels).astype(jnp.float32)
  wide = scale.astype(x.dtype)
  levels = jnp.where(wide > 0, jnp.round(x / jnp.where(wide > 0, wide, 1)), 0)
  levels = jnp.clip(levels, -quantiser.levels, quantiser.levels).astype(jnp.int8)
  numbers = lax.bitcast_convert_type(levels, jnp.uint8)
  if quantiser.bits == 4:
    numbers = (numbers[..., 0::2] & 15) | (numbers[..., 1::2] << 4)
  return jnp.concatenate([numbers, lax.bitcast_convert_type(scale[..., 0], jnp.uint8)], axis=-1)


def decode(content: jax.Array, quantiser: Quantiser, dtype: jnp.dtype) -> jax.Array:
  """The inverse of `encode`.

  Args:
    content: as `encode` returns it.
    quantiser: the encoding.
    dtype: of the result.

  >>> x = jnp.array([[7.0, -2.0], [3.5, 1.2]])  # scales 1 and 0.5
  >>> decode(encode(x, Quantiser(bits=4)), Quantiser(bits=4), x.dtype).tolist()
  [[7.0, -2.0], [3.5, 1.0]]
  """
  if quantiser.bits == 16:
    return lax.bitcast_convert_type(content, jnp.bfloat16).astype(dtype)
  numbers, scales = content[..., :-SCALE_BYTES], content[..., -SCALE_BYTES:]
  if quantiser.bits == 4:
    numbers = jnp.stack([numbers << 4, numbers & 240], axis=-1)  # the four bits on top, for their sign ...
    signed = lax.bitcast_convert_type(numbers, jnp.int8) >> 4  # ... which the shift keeps
    signed = signed.reshape(*signed.shape[:-2], -1)
  else:
    signed = lax.bitcast_convert_type(numbers, jnp.int8)
  scale = lax.bitcast_convert_type(scales, jnp.float32)
  return signed.astype(dtype) * scale[..., None].astype(dtype)


def _exchange(shards, names):
  """Row j of the result is the row that worker j has for this worker."""
  sizes = [lax.axis_size(name) for name in names]
  x = shards.reshape(*sizes, *shards.shape[1:])
  for axis, name in enumerate(names):
    x = lax.all_to_all(x, name, axis, axis) if sizes[axis] > 1 else x
  return x.reshape(shards.shape)


def _gather(shard, names):
  """Row j of the result is worker j's vector."""
  x = shard
  for name in reversed(names):
    x = lax.all_gather(x, name) if lax.axis_size(name) > 1 else x[None]
  return x.reshape(-1, *shard.shape)
