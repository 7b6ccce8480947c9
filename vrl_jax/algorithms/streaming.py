"""Streaming: the model is sent in fragments, spread evenly over the period."""

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.exchange import exchange_of
from vrl_jax.algorithms.core.general_rule import with_settings


def streaming(algorithm: Algorithm, fragments: int) -> Algorithm:
  """Sends the model in fragments of equal size, at different times of the period.

  Fragment f of F is sent after ⌈(f + 1)k/F⌉ local steps, so each transfer is F times smaller, and the bytes per period
  are the same. The mean of a fragment and its part of Δ come from the k steps since it was last sent. A fragment is a contiguous piece of the concatenated leaves, and may cut through a leaf.

  Args:
    algorithm: `local_sgd`, `vrl_sgd`, `slowmo` or `vrl_adaptive` with `buffers='keep'`, `scaffold` with
      `participation=1`, `diloco`, or :func:`vrl_jax.with_outer_optimizer` around one of them; also one that is already
      :func:`vrl_jax.overlapped` or :func:`vrl_jax.quantised`. :func:`vrl_jax.precede` must come after it.
    fragments: F; 1 is the algorithm itself.

  Returns:
    The Algorithm. Its state is a `GeneralState`, with copies of the model that other algorithms do not need.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.streaming(vrl_jax.vrl_sgd(optax.sgd(0.5), axis_name='w'), fragments=2)
  >>> params = jnp.zeros((2, 2))  # two workers, a model of two numbers each: two fragments of one number
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> grads = jnp.array([[1.0, 1.0], [3.0, 3.0]])  # constant gradients of the workers
  >>> for step, communicate in algorithm.communications(period=2):  # after the first and the second step
  ...   updates, state = jax.vmap(algorithm.transform.update)(grads, state, params)
  ...   params, state = jax.vmap(communicate, axis_name='w')(params + updates, state)
  ...   print(step, params.tolist())
  1 [[-1.0, -0.5], [-1.0, -1.5]]
  2 [[-2.0, -2.0], [-2.0, -2.0]]
  >>> algorithm.correction(state).tolist()  # Δ_i = g_i - mean of the gradients; the first fragment had it in the second step
  [[-1.0, -1.0], [1.0, 1.0]]

  References:
    Douillard et al, `Streaming DiLoCo with Overlapping Communication <https://arxiv.org/abs/2501.18512>`_, 2025
  """
  if isinstance(fragments, bool) or not isinstance(fragments, int) or fragments < 1:
    raise ValueError(f'fragments={fragments!r}, must be an integer of at least 1')
  if fragments == 1 and algorithm.exchange is None:
    return algorithm
  return with_settings(algorithm, exchange_of(algorithm, 'streaming')._replace(fragments=fragments))
