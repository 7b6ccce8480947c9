"""Overlapped communication: transfers during the next local steps."""

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.exchange import exchange_of
from vrl_jax.algorithms.core.general_rule import with_settings


def overlapped(algorithm: Algorithm, delay: int) -> Algorithm:
  r"""Takes local steps while a communication is in progress.

  A communication that starts after a step is applied :math:`\tau` local steps later: with :math:`x_i^s` the model of worker i at the start
  and :math:`\hat x` the mean of these models,

  .. math::

    x_i \leftarrow \hat x + (x_i - x_i^s) .

  The collective does not depend on the steps in between, so the two can run at the same time. Δ changes when the mean is
  applied; its old value until then is accounted for (`vrl_jax.algorithms.core.general_rule`). The models of the workers
  always differ, and the model to evaluate is their mean. The mean of a run's last period is not applied.

  Args:
    algorithm: see :func:`vrl_jax.streaming`.
    delay: τ, in local steps; 0 is the algorithm itself. A transfer ends at the latest when the next one starts: after a
      period, or after a fragment's part of it.

  Returns:
    The Algorithm. Its state, and so a checkpoint, has the transfer in progress.

  With `local_sgd` and a delay of a whole period it is :func:`vrl_jax.cocod_sgd`:

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.overlapped(vrl_jax.local_sgd(optax.sgd(0.5), axis_name='w'), delay=1)
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> for _ in range(2):  # two periods of one step with the constant gradients 2 and 6
  ...   updates, state = jax.vmap(algorithm.transform.update)(jnp.array([2.0, 6.0]), state, params)
  ...   params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)
  ...   print(params.tolist())
  [-1.0, -3.0]
  [-3.0, -5.0]

  References:
    Douillard et al, `Streaming DiLoCo with Overlapping Communication <https://arxiv.org/abs/2501.18512>`_, 2025
  """
  if isinstance(delay, bool) or not isinstance(delay, int) or delay < 0:
    raise ValueError(f'delay={delay!r}, must be an integer of at least 0')
  if delay == 0 and algorithm.exchange is None:
    return algorithm
  return with_settings(algorithm, exchange_of(algorithm, 'overlapped')._replace(delay=delay))
