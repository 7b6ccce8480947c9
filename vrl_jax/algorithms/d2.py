"""D²: decentralised SGD whose error does not depend on how the workers' data differ."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.base import (
  AXIS,
  NEEDS_PARAMS,
  Algorithm,
  AxisName,
  Params,
  State,
  cast_like,
  mean_over_workers,
  no_correction,
  widened,
)
from vrl_jax.algorithms.gossip import check_mixing, mix


class PreviousState(NamedTuple):
  """State of :func:`d2` and :func:`vrl_jax.extra`.

  Attributes:
    inner: the inner optimizer's state, each worker's own.
    params: x_i before the last step, each worker's own.
    updates: what the inner optimizer proposed in the last step, each worker's own.

  >>> state = d2(optax.sgd(0.1)).init(jnp.ones(2))
  >>> state.params.tolist(), state.updates.tolist()
  ([1.0, 1.0], [0.0, 0.0])
  """

  inner: State
  params: Params
  updates: Params


def d2(inner: optax.GradientTransformation, *, mixing: str = 'ring', axis_name: AxisName = AXIS) -> Algorithm:
  r"""D² (decentralised training over decentralised data): gossip with the memory of one step.

  With W the mixing matrix and :math:`u_i^t` the inner optimizer's update (:math:`-\gamma g_i(x_i^t)` for SGD),

  .. math::

    x_i^{t+1} = \sum_j W_{ij} (2 x_j^t - x_j^{t-1} + u_j^t - u_j^{t-1}),
    \qquad x_i^{-1} = x_i^0, \quad u_i^{-1} = 0 .

  The difference of two updates cancels what is particular to a worker, as VRL-SGD's Δ does over a whole period. On the
  complete graph the mean of the models takes S-SGD's steps. `update` is a collective: it runs under the workers' axis,
  and `communicate` does nothing.

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients.
    mixing: W, 'ring' (1/2 of its own, 1/4 of each neighbour) or 'complete' (the mean).
    axis_name: the mapped axis (or axes) of the workers; on the ring they stand in the order of `lax.axis_index`.

  Returns:
    The Algorithm. At every step it sends the parameters to both neighbours, or reduces them over all workers.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.d2(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(4)  # four workers, a model of one number each
  >>> state = jax.vmap(algorithm.init)(params)
  >>> updates, state = jax.vmap(algorithm.update, axis_name='w')(jnp.array([8.0, 0.0, 0.0, 0.0]), state, params)
  >>> (params + updates).tolist()
  [-2.0, -1.0, 0.0, -1.0]

  References:
    Tang et al, `D²: Decentralized Training over Decentralized Data <https://arxiv.org/abs/1803.07068>`_, 2018
  """
  check_mixing(mixing)
  inner = optax.with_extra_args_support(inner)

  def init(params):
    return PreviousState(inner.init(params), params, jax.tree.map(jnp.zeros_like, params))

  def update(grads, state, params=None, **extra_args):
    if params is None:
      raise ValueError(NEEDS_PARAMS)
    updates, inner_state = inner.update(grads, state.inner, params, **extra_args)
    x, before, u, last = map(widened, (params, state.params, updates, state.updates))
    ahead = jax.tree.map(lambda x, y, u, w: 2 * x - y + u - w, x, before, u, last)
    new = cast_like(mix(mixing, ahead, axis_name), params)
    return jax.tree.map(jnp.subtract, new, params), PreviousState(inner_state, params, updates)

  return Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=lambda params, state: (params, state),
    consensus=lambda params, state: cast_like(mean_over_workers(params, axis_name), params),
    correction=no_correction,
  )
