"""Local SGD: k local steps, then the mean of the models."""

import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, no_correction
from vrl_jax.algorithms.core.averaging import mean_keeping_dtypes
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.buffers import check_buffers, communicate_buffers
from vrl_jax.algorithms.core.evaluation import evaluated_mean
from vrl_jax.algorithms.core.exchange import Exchange, with_exchange


def local_sgd(inner: optax.GradientTransformation, *, buffers: str = 'keep', axis_name: AxisName = AXIS) -> Algorithm:
  r"""Local SGD, also known as federated averaging with full participation.

  .. math::

    x_i &\leftarrow x_i - \gamma g_i(x_i) && \quad \text{at every local step} \\
    x_i &\leftarrow \hat x = \frac{1}{N} \sum_j x_j && \quad \text{after } k \text{ steps}

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients.
    buffers: what a communication does to the optimizer's buffers (momentum): 'keep' leaves them as they are on each
      worker, 'mean' averages them (and sends them), 'reset' restores their initial values.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the parameters once per period (and the buffers with 'mean').

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> updates, state = jax.vmap(algorithm.transform.update)(jnp.array([1.0, 3.0]), state, params)
  >>> params = params + updates
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params, state)
  >>> params.tolist()
  [-1.0, -1.0]

  References:
    Stich, `Local SGD Converges Fast and Communicates Little <https://arxiv.org/abs/1805.09767>`_, 2018
  """
  check_buffers(buffers)
  inner = optax.with_extra_args_support(inner)

  def communicate(params, state):
    params = mean_keeping_dtypes(params, axis_name)
    return params, communicate_buffers(buffers, inner, params, state, axis_name)

  algorithm = Algorithm(
    transform=inner,
    communicate=communicate,
    consensus=lambda params, state: evaluated_mean(params, state, axis_name),
    correction=no_correction,
  )
  return with_exchange(algorithm, Exchange(inner, axis_name)) if buffers == 'keep' else algorithm
