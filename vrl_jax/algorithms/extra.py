"""EXTRA: the exact first-order decentralised algorithm from which D² and VRL-SGD descend."""

import jax
import optax

from vrl_jax.algorithms.core.algorithm import NEEDS_PARAMS, Algorithm
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.mixing import mix
from vrl_jax.algorithms.core.precision import cast_like, widened
from vrl_jax.algorithms.d2 import PreviousState, d2


def extra(inner: optax.GradientTransformation, *, mixing: str = 'ring', axis_name: AxisName = AXIS) -> Algorithm:
  r"""EXTRA: decentralised gradient descent that reaches the exact optimum with a constant step.

  With W the mixing matrix, :math:`\tilde W = (I + W) / 2` and :math:`u_i^t` the inner optimizer's update,

  .. math::

    x^{t+1} = (I + W) x^t - \tilde W x^{t-1} + u^t - u^{t-1}, \qquad x^{-1} = x^0, \quad u^{-1} = 0 .

  This is computed as :math:`(I + W) z^t + u^t - u^{t-1}` with :math:`z^t = x^t - x^{t-1}/2`, so only one vector is
  mixed. Unlike in D², the updates are not mixed until the next step. The first step is :math:`x^1 = W x^0 + u^0` as in
  the paper, because all workers start from the same model.

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients.
    mixing: W, 'ring' (weights 1/2 for the worker itself, 1/4 for each neighbour) or 'complete' (the mean).
    axis_name: the mapped axis (or axes) of the workers; their order on the ring is that of `lax.axis_index`.

  Returns:
    The Algorithm. At every step it sends the parameters to both neighbours, or reduces them over all workers.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.extra(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(4)  # four workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> for gradient in (jnp.array([8.0, 0.0, 0.0, 0.0]), jnp.zeros(4)):
  ...   updates, state = jax.vmap(algorithm.transform.update, axis_name='w')(gradient, state, params)
  ...   params = params + updates
  ...   print(params.tolist())
  [-4.0, 0.0, 0.0, 0.0]
  [-2.0, -1.0, 0.0, -1.0]

  References:
    Shi et al, `EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization
    <https://arxiv.org/abs/1404.6264>`_, 2014
  """
  base = d2(inner, mixing=mixing, axis_name=axis_name)
  inner = optax.with_extra_args_support(inner)

  def update(grads, state, params=None, **extra_args):
    if params is None:
      raise ValueError(NEEDS_PARAMS)
    updates, inner_state = inner.update(grads, state.inner, params, **extra_args)
    x, before, u, last = map(widened, (params, state.params, updates, state.updates))
    z = jax.tree.map(lambda x, y: x - y / 2, x, before)
    moved = jax.tree.map(lambda z, mixed, x, u, w: z + mixed - x + u - w, z, mix(mixing, z, axis_name), x, u, last)
    moved = cast_like(moved, params)
    return moved, PreviousState(inner_state, params, updates)

  return base._replace(transform=optax.GradientTransformationExtraArgs(base.transform.init, update))
