"""Elastic averaging SGD, in its synchronous form with a period."""

from typing import NamedTuple

import jax
import optax
from jax import lax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State, no_correction
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AXIS, AxisName, worker_axes
from vrl_jax.algorithms.core.precision import cast_like, copied, widened

_DEFAULT_BETA = 0.9


class EASGDState(NamedTuple):
  """State of :func:`easgd`.

  Attributes:
    inner: the inner optimizer's state, per worker.
    centre: the centre c, the same on every worker; at least float32.

  >>> import jax.numpy as jnp
  >>> easgd(optax.sgd(0.1)).transform.init(jnp.ones(2)).centre.tolist()  # the initial parameters
  [1.0, 1.0]
  """

  inner: State
  centre: Params


def easgd(inner: optax.GradientTransformation, *, alpha: float | None = None, axis_name: AxisName = AXIS) -> Algorithm:
  r"""Elastic averaging SGD: an elastic force pulls the workers and a centre towards each other.

  After k local steps of the inner optimizer, with :math:`e_i = x_i - c`,

  .. math::

    x_i \leftarrow x_i - \alpha e_i, \qquad c \leftarrow c + \alpha \sum_i e_i .

  With :math:`\beta = N \alpha` the centre becomes :math:`c \leftarrow (1 - \beta) c + \beta \hat x`, which is how it is
  computed: only the mean of the models is sent. The workers' models stay different; the model to evaluate is the
  centre.

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients.
    alpha: the elastic force α, at most 1/N; None means 0.9/N.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the parameters once per period.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.easgd(optax.sgd(0.5), alpha=0.25, axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> updates, state = jax.vmap(algorithm.transform.update)(jnp.array([2.0, 6.0]), state, params)
  >>> params = params + updates  # -1 and -3
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params, state)
  >>> params.tolist(), state.centre.tolist()
  ([-0.75, -2.25], [-1.0, -1.0])

  References:
    Zhang et al, `Deep learning with Elastic Averaging SGD <https://arxiv.org/abs/1412.6651>`_, 2015
  """
  if alpha is not None and not 0 < alpha <= 1:
    raise ValueError(f'alpha={alpha}, must be in (0, 1/N], or None for {_DEFAULT_BETA}/N')
  inner = optax.with_extra_args_support(inner)

  def init(params):
    return EASGDState(inner.init(params), widened(copied(params)))

  def update(grads, state, params=None, **extra_args):
    updates, inner_state = inner.update(grads, state.inner, params, **extra_args)
    return updates, state._replace(inner=inner_state)

  def communicate(params, state):
    workers = lax.psum(1, worker_axes(axis_name))
    force = _DEFAULT_BETA / workers if alpha is None else alpha
    beta = force * workers
    if beta > 1 + 1e-9:
      raise ValueError(
        f'alpha={alpha} with {workers} workers gives N·alpha = {beta:g} > 1, which is unstable: '
        f'alpha must be at most 1/N = {1 / workers:g}'
      )
    mean = mean_over_workers(params, axis_name)
    pulled = jax.tree.map(lambda x, c: x - force * (x.astype(c.dtype) - c).astype(x.dtype), params, state.centre)
    centre = jax.tree.map(lambda c, m: c + beta * (m - c), state.centre, mean)
    return pulled, state._replace(centre=centre)

  return Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: cast_like(state.centre, params),
    correction=no_correction,
  )
