"""D²: decentralised SGD whose error does not depend on the differences between the workers' data."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import NEEDS_PARAMS, Algorithm, Params, State, no_correction
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.evaluation import evaluated_mean
from vrl_jax.algorithms.core.mixing import check_mixing, mix
from vrl_jax.algorithms.core.precision import cast_like, copied, widened


class PreviousState(NamedTuple):
  """State of :func:`d2` and :func:`vrl_jax.extra`.

  Attributes:
    inner: the inner optimizer's state, per worker.
    params: x_i before the last step, per worker.
    updates: the inner optimizer's updates in the last step, per worker.

  >>> state = d2(optax.sgd(0.1)).transform.init(jnp.ones(2))
  >>> state.params.tolist(), state.updates.tolist()
  ([1.0, 1.0], [0.0, 0.0])
  """

  inner: State
  params: Params
  updates: Params


def d2(inner: optax.GradientTransformation, *, mixing: str = 'ring', axis_name: AxisName = AXIS) -> Algorithm:
  r"""D² (decentralised training over decentralised data): gossip that uses the previous step.

  With W the mixing matrix and :math:`u_i^t` the inner optimizer's update (:math:`-\gamma g_i(x_i^t)` for SGD),

  .. math::

    x_i^{t+1} = \sum_j W_{ij} (2 x_j^t - x_j^{t-1} + u_j^t - u_j^{t-1}),
    \qquad x_i^{-1} = x_i^0, \quad u_i^{-1} = 0 .

  The difference of two updates cancels the part that is specific to a worker, as VRL-SGD's Δ does over a period. On the
  complete graph the mean of the models follows S-SGD. `transform.update` is a collective, so it must run under the
  workers' axis, and `communicate` does nothing.

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients.
    mixing: W, 'ring' (weights 1/2 for the worker itself, 1/4 for each neighbour) or 'complete' (the mean).
    axis_name: the mapped axis (or axes) of the workers; their order on the ring is that of `lax.axis_index`.

  Returns:
    The Algorithm. At every step it sends the parameters to both neighbours, or reduces them over all workers.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.d2(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(4)  # four workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> update = jax.vmap(algorithm.transform.update, axis_name='w')
  >>> updates, state = update(jnp.array([8.0, 0.0, 0.0, 0.0]), state, params)
  >>> (params + updates).tolist()
  [-2.0, -1.0, 0.0, -1.0]

  References:
    Tang et al, `D²: Decentralized Training over Decentralized Data <https://arxiv.org/abs/1803.07068>`_, 2018
  """
  check_mixing(mixing)
  inner = optax.with_extra_args_support(inner)

  def init(params):
    return PreviousState(inner.init(params), copied(params), jax.tree.map(jnp.zeros_like, params))

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
    consensus=lambda params, state: evaluated_mean(params, state.inner, axis_name),
    correction=no_correction,
  )
