"""Synchronous SGD: the mean gradient at every step."""

import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, no_correction
from vrl_jax.algorithms.core.averaging import mean_keeping_dtypes
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.evaluation import evaluation_params


def s_sgd(inner: optax.GradientTransformation, *, axis_name: AxisName = AXIS) -> Algorithm:
  r"""Synchronous SGD (S-SGD), the baseline that communicates at every step.

  .. math::

    x \leftarrow x - \gamma \frac{1}{N} \sum_i g_i(x)

  All workers have the same model at every step, and `communicate` does nothing. `transform.update` is a collective, so
  it must run under the workers' axis.

  Args:
    inner: any optax optimizer; it gets the mean gradient.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the gradient once per step.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.s_sgd(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> updates, state = jax.vmap(algorithm.transform.update, axis_name='w')(jnp.array([1.0, 3.0]), state, params)
  >>> (params + updates).tolist()
  [-1.0, -1.0]
  """
  inner = optax.with_extra_args_support(inner)

  def update(grads, state, params=None, **extra_args):
    return inner.update(mean_keeping_dtypes(grads, axis_name), state, params, **extra_args)

  return Algorithm(
    transform=optax.GradientTransformationExtraArgs(inner.init, update),
    communicate=lambda params, state: (params, state),
    consensus=evaluation_params,
    correction=no_correction,
  )
