"""An outer optimizer on the displacement of a period, and DiLoCo, its best-known use."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.exchange import Server, with_exchange
from vrl_jax.algorithms.core.precision import copied
from vrl_jax.algorithms.local_sgd import local_sgd


class OuterState(NamedTuple):
  """State of :func:`with_outer_optimizer`.

  Attributes:
    algorithm: the wrapped algorithm's state.
    outer: the outer optimizer's state, the same on every worker.
    start: the model at the start of the period, the same on every worker.

  >>> diloco(optax.adamw(0.1)).transform.init(jnp.ones(2)).start.tolist()
  [1.0, 1.0]
  """

  algorithm: State
  outer: State
  start: Params


def with_outer_optimizer(algorithm: Algorithm, transform: optax.GradientTransformation) -> Algorithm:
  r"""Treats the displacement of a period as a gradient and passes it to a second, outer optimizer.

  With :math:`x^s` the model at the start of the period (`state.start`) and :math:`\hat x` the wrapped algorithm's model
  at its end,

  .. math::

    x_i \leftarrow x^s + u(x^s - \hat x), \qquad x^s \leftarrow x_i ,

  where u is the outer optimizer's update. With `optax.sgd(1.0)` it is the wrapped algorithm. All workers take the same
  outer step, so nothing more is sent.

  Args:
    algorithm: an algorithm that leaves the same model on all workers after a communication: `local_sgd`, `vrl_sgd`,
      `scaffold`.
    transform: any optax optimizer.

  Returns:
    The composed Algorithm.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.with_outer_optimizer(vrl_jax.vrl_sgd(optax.sgd(0.5), axis_name='w'), optax.sgd(2.0))
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> updates, state = jax.vmap(algorithm.transform.update)(jnp.array([1.0, 3.0]), state, params)
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)
  >>> params.tolist()  # the mean moved by -1, and the outer learning rate is 2
  [-2.0, -2.0]

  References:
    Reddi et al, `Adaptive Federated Optimization <https://arxiv.org/abs/2003.00295>`_, 2020
  """
  if algorithm.plan:
    raise ValueError(
      'with_outer_optimizer must come before streaming and overlapped: streaming(with_outer_optimizer(...))'
    )
  outer = optax.with_extra_args_support(transform)

  def init(params):
    return OuterState(algorithm.transform.init(params), outer.init(params), copied(params))

  def update(grads, state, params=None, **extra_args):
    updates, inner_state = algorithm.transform.update(grads, state.algorithm, params, **extra_args)
    return updates, state._replace(algorithm=inner_state)

  def communicate(params, state):
    agreed, inner_state = algorithm.communicate(params, state.algorithm)
    moved = jax.tree.map(jnp.subtract, state.start, agreed)
    updates, outer_state = outer.update(moved, state.outer, state.start)
    params = optax.apply_updates(state.start, updates)
    return params, OuterState(inner_state, outer_state, params)

  def server_step(outer_state, agreed, mean, response):
    updates, outer_state = outer.update(jax.tree.map(jnp.negative, mean), outer_state, agreed)
    return optax.apply_updates(agreed, updates), outer_state

  composed = algorithm._replace(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: algorithm.consensus(params, state.algorithm),
    correction=lambda state: algorithm.correction(state.algorithm),
    exchange=None,
  )
  parts = algorithm.exchange
  if parts is None or parts.server or parts.made != algorithm._replace(exchange=None):
    return composed
  return with_exchange(composed, parts._replace(server=Server(outer.init, server_step), plain=None))


def diloco(
  inner: optax.GradientTransformation,
  *,
  outer_learning_rate: float = 0.7,
  outer_momentum: float = 0.9,
  axis_name: AxisName = AXIS,
) -> Algorithm:
  r"""DiLoCo: long periods of a local optimizer, usually AdamW, and Nesterov momentum on their displacement.

  This is :func:`vrl_jax.with_outer_optimizer` around :func:`vrl_jax.local_sgd` with the outer optimizer
  `optax.sgd(outer_learning_rate, momentum=outer_momentum, nesterov=True)`: with :math:`d = x^s - \hat x`,

  .. math::

    m \leftarrow \beta m + d, \qquad x_i \leftarrow x^s - \alpha (\beta m + d) .

  The inner optimizer's buffers stay local to each worker.

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients; the paper uses `optax.adamw`.
    outer_learning_rate: the outer learning rate :math:`\alpha`.
    outer_momentum: the outer momentum :math:`\beta`.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the parameters once per period.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.diloco(optax.sgd(0.5), outer_learning_rate=1.0, outer_momentum=0.5, axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> updates, state = jax.vmap(algorithm.transform.update)(jnp.array([1.0, 3.0]), state, params)
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)
  >>> params.tolist()  # d = 1, m = 1, a step of 1 + 0.5
  [-1.5, -1.5]

  References:
    Douillard et al, `DiLoCo: Distributed Low-Communication Training of Language Models
    <https://arxiv.org/abs/2311.08105>`_, 2023
  """
  if outer_learning_rate <= 0:
    raise ValueError(f'outer_learning_rate={outer_learning_rate}, must be positive')
  if not 0 <= outer_momentum < 1:
    raise ValueError(f'outer_momentum={outer_momentum}, must be at least 0 and less than 1')
  outer = optax.sgd(outer_learning_rate, momentum=outer_momentum, nesterov=True)
  return with_outer_optimizer(local_sgd(inner, axis_name=axis_name), outer)
