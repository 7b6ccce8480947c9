"""CoCoD-SGD: Local SGD whose communication overlaps its computation."""

from typing import NamedTuple

import jax
import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State, no_correction
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.evaluation import evaluated_mean
from vrl_jax.algorithms.core.precision import cast_like, copied


class CoCoDSGDState(NamedTuple):
  """State of :func:`cocod_sgd`.

  Attributes:
    inner: the inner optimizer's state, per worker.
    start: x_i at the start of the period, per worker.

  >>> import jax.numpy as jnp
  >>> cocod_sgd(optax.sgd(0.1)).transform.init(jnp.ones(2)).start.tolist()
  [1.0, 1.0]
  """

  inner: State
  start: Params


def cocod_sgd(inner: optax.GradientTransformation, *, axis_name: AxisName = AXIS) -> Algorithm:
  r"""CoCoD-SGD: the mean of the models at the start of a period, plus each worker's displacement in the period.

  With :math:`x_i^s` (`state.start`) the model of worker i at the start of the period and :math:`x_i` (`params`) its
  model after k local steps,

  .. math::

    x_i \leftarrow \frac{1}{N} \sum_j x_j^s + (x_i - x_i^s), \qquad x_i^s \leftarrow x_i .

  The all-reduce does not depend on the local steps, so the two can overlap. In return the mean is one period old: the
  workers' models always differ, and the model to evaluate is their mean.

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the parameters once per period.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.cocod_sgd(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> for _ in range(2):  # two periods of one step with the constant gradients 2 and 6
  ...   updates, state = jax.vmap(algorithm.transform.update)(jnp.array([2.0, 6.0]), state, params)
  ...   params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)
  ...   print(params.tolist())
  [-1.0, -3.0]
  [-3.0, -5.0]

  References:
    Shen et al, `Faster Distributed Deep Net Training: Computation and Communication Decoupled Stochastic Gradient
    Descent <https://arxiv.org/abs/1906.12043>`_, 2019
  """
  inner = optax.with_extra_args_support(inner)

  def init(params):
    return CoCoDSGDState(inner.init(params), copied(params))

  def update(grads, state, params=None, **extra_args):
    updates, inner_state = inner.update(grads, state.inner, params, **extra_args)
    return updates, state._replace(inner=inner_state)

  def communicate(params, state):
    mean = mean_over_workers(state.start, axis_name)
    moved = jax.tree.map(lambda m, x, s: m + (x.astype(m.dtype) - s.astype(m.dtype)), mean, params, state.start)
    params = cast_like(moved, params)
    return params, state._replace(start=params)

  return Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: evaluated_mean(params, state.inner, axis_name),
    correction=no_correction,
  )
