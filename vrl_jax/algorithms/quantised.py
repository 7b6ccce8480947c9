"""Models that are sent as bfloat16, or with 8 or 4 bits per number."""

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.exchange import exchange_of
from vrl_jax.algorithms.core.general_rule import with_settings
from vrl_jax.algorithms.core.quantisation import BITS, Quantiser


def quantised(algorithm: Algorithm, bits: int, *, error_feedback: bool = True, block: int = 256) -> Algorithm:
  r"""Sends the change of the model since the last agreement, as bfloat16 or with 8 or 4 bits per number.

  Worker i sends an encoding of :math:`t_i = x_i - \mathrm{ref} + e_i`, where ref is the model that all workers agreed on
  last. With :math:`q_i` what it contributes to the mean in effect,

  .. math::

    x_i \leftarrow \mathrm{ref} + \frac{1}{N} \sum_j q_j, \qquad e_i \leftarrow t_i - q_i ,

  and VRL-SGD's Δ is computed from :math:`q_i` instead of :math:`x_i`, so that it still sums to zero over the workers. All
  of this becomes exact as the models converge: the rounding error is relative to the change, and not to the model.

  The bytes are really sent so: an all-to-all of encoded shards and an all-gather of their encoded means
  (`vrl_jax.algorithms.core.quantisation`), 2(N−1)/N of the encoded vector per worker. Several workers on a device
  send separately. Rounding is to the nearest, and the mean is bitwise equal on all workers. Under `jax.vmap` over a
  sharded axis, JAX's partitioner decides what is sent, and may send more: use `jax.shard_map` there.

  Args:
    algorithm: see :func:`vrl_jax.streaming`.
    bits: 16 for bfloat16, 8 or 4 for integers with a scale for each block; 32 is the algorithm itself.
    error_feedback: whether :math:`e_i` is kept; without it, it is 0.
    block: the maximal number of integers that share a scale, a float32.

  Returns:
    The Algorithm.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.quantised(vrl_jax.vrl_sgd(optax.sgd(1.0), axis_name='w'), bits=4)
  >>> params = jnp.zeros((2, 4))  # two workers, whose shards are two numbers each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> grads = -jnp.array([[7.0, 3.25, 7.0, 0.0], [14.0, 6.0, 14.0, 2.0]])
  >>> updates, state = jax.vmap(algorithm.transform.update)(grads, state, params)
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)
  >>> params.round(4).tolist()[0]  # 3.25 is sent as 3, and the mean of 0 and 2, scaled by 1.5, as 1.5
  [10.5, 4.5, 10.5, 1.5]
  >>> (state.unsent.round(2) + 0.0).tolist()  # the second worker owns the second shard: its 2 became 3
  [[0.0, 0.25, 0.0, 0.0], [0.0, 0.0, 0.0, -1.0]]
  >>> algorithm.correction(state).sum(axis=0).round(4).tolist()
  [0.0, 0.0, 0.0, 0.0]

  References:
    Dettmers, `8-Bit Approximations for Parallelism in Deep Learning <https://arxiv.org/abs/1511.04561>`_, 2015, for the
    blocks; Seide et al, `1-Bit Stochastic Gradient Descent
    <https://www.isca-archive.org/interspeech_2014/seide14_interspeech.html>`_, 2014, for error feedback
  """
  if bits not in (*BITS, 32) or isinstance(bits, bool):
    raise ValueError(f'bits={bits!r}, must be 4, 8, 16 or 32')
  if isinstance(block, bool) or not isinstance(block, int) or block < 2:
    raise ValueError(f'block={block!r}, must be an integer of at least 2')
  if bits == 32 and algorithm.exchange is None:
    return algorithm
  quantiser = None if bits == 32 else Quantiser(bits, block, error_feedback)
  return with_settings(algorithm, exchange_of(algorithm, 'quantised')._replace(quantiser=quantiser))
