"""Variance Reduced Local SGD."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.base import AXIS, Algorithm, AxisName, Params, State, cast_like, mean_over_workers, wide_dtype
from vrl_jax.algorithms.buffers import check_buffers, communicate_buffers, with_buffers_of
from vrl_jax.algorithms.linearity import require_linear


class VRLSGDState(NamedTuple):
  """State of :func:`vrl_sgd`.

  Attributes:
    inner: the inner optimizer's state, each worker's own.
    delta: Δ_i, each worker's own, like the parameters but at least float32; sums to zero over the workers.
    probe: the state of the inner optimizer that sees the constant gradient 1, one number per leaf; the same on every
      worker.
    response: how far the probe has moved since the last communication, one number per leaf; the same on every worker.
  """

  inner: State
  delta: Params
  probe: State
  response: Params


def vrl_sgd(
  inner: optax.GradientTransformation,
  *,
  buffers: str = 'keep',
  assume_linear: bool = False,
  axis_name: AxisName = AXIS,
) -> Algorithm:
  r"""Variance Reduced Local SGD (VRL-SGD): Local SGD without the drift, at the same communication.

  With :math:`x_i` the model of worker i (`params`), :math:`g_i` its stochastic gradient (`grads`) and
  :math:`\Delta_i` its correction (`state.delta`, zero at the start),

  .. math::

    v_i &= g_i(x_i) - \Delta_i, \qquad x_i \leftarrow x_i - \gamma v_i && \text{at every local step} \\
    \hat x &= \frac{1}{N} \sum_j x_j, \qquad
    \Delta_i \leftarrow \Delta_i + \frac{\hat x - x_i}{k \gamma}, \qquad
    x_i \leftarrow \hat x && \text{after } k \text{ of them.}

  The divisor :math:`k\gamma` is never computed from k and γ. It is what a constant gradient of 1 would have moved the
  model in the period, so the inner optimizer is run on such a gradient too (one number per leaf, the probe) and its
  steps are added up. That is :math:`k\gamma` for plain SGD, :math:`\sum_t \gamma_t` for a schedule, the right thing for
  a short first or last period, and with momentum or Nesterov inside. Where it is zero (a schedule that starts at 0), Δ
  stays as it was.

  Args:
    inner: an optax optimizer that is linear in the gradient: `optax.sgd` with momentum, Nesterov, schedules, weight
      decay, masks. Others (Adam, clipping, signs) are refused; see :func:`vrl_jax.precede` for where they go.
    buffers: what a communication does to the optimizer's buffers (momentum): 'keep' leaves each worker its own,
      'mean' averages them (and sends them), 'reset' starts them anew. All three reach the same optimum.
    assume_linear: skips the test of linearity.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the parameters once per period (and the buffers with 'mean').

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.vrl_sgd(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.init)(params)
  >>> for _ in range(2):  # a period of k = 2 with the constant gradients 1 and 3
  ...   updates, state = jax.vmap(algorithm.update)(jnp.array([1.0, 3.0]), state, params)
  ...   params = params + updates
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params, state)
  >>> params.tolist(), state.delta.tolist()  # Δ_i = g_i - mean of the gradients
  ([-2.0, -2.0], [-1.0, 1.0])

  References:
    Liang et al, `Variance Reduced Local SGD with Lower Communication Complexity <https://arxiv.org/abs/1912.12844>`_,
    2019
  """
  check_buffers(buffers)
  inner = optax.with_extra_args_support(inner)

  def init(params):
    unit = _probe_leaves(params, 0)
    probe = inner.init(unit)
    if not assume_linear:
      require_linear(inner, unit, probe)
    delta = jax.tree.map(lambda x: jnp.zeros_like(x, wide_dtype(x)), params)
    return VRLSGDState(inner.init(params), delta, probe, unit)

  def update(grads, state, params=None, **extra_args):
    v = jax.tree.map(lambda g, d: (g.astype(d.dtype) - d).astype(g.dtype), grads, state.delta)
    updates, inner_state = inner.update(v, state.inner, params, **extra_args)

    # Counters and injected hyperparameters are the real optimizer's, so that whoever changes them there changes both.
    probe = with_buffers_of(inner, state.probe, state.inner)
    # Zero parameters: weight decay is part of the gradient, not of the response to it.
    step, probe = inner.update(_probe_leaves(grads, 1), probe, _probe_leaves(grads, 0), **extra_args)
    response = jax.tree.map(jnp.subtract, state.response, step)
    return updates, VRLSGDState(inner_state, state.delta, probe, response)

  def communicate(params, state):
    mean = mean_over_workers(params, axis_name)

    def corrected(delta, m, x, response):
      moved = response != 0
      return delta + jnp.where(moved, (m - x.astype(m.dtype)) / jnp.where(moved, response, 1), 0)

    delta = jax.tree.map(corrected, state.delta, mean, params, state.response)
    params = cast_like(mean, params)
    unit = _probe_leaves(params, 0)
    # Buffers that start the next period equal on all workers cancel in x̂ - x_i: the probe then starts at rest as well.
    probe = state.probe if buffers == 'keep' else with_buffers_of(inner, inner.init(unit), state.probe)
    inner_state = communicate_buffers(buffers, inner, params, state.inner, axis_name)
    return params, VRLSGDState(inner_state, delta, probe, unit)

  return Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: cast_like(mean_over_workers(params, axis_name), params),
    correction=lambda state: state.delta,
  )


def _probe_leaves(params, value):
  # Rank is kept because masks and labels look at it.
  return jax.tree.map(lambda x: jnp.full((1,) * x.ndim, value, wide_dtype(x)), params)
