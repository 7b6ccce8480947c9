"""Variance Reduced Local SGD."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.base import AXIS, Algorithm, AxisName, Params, State, cast_like, mean_over_workers, wide_dtype
from vrl_jax.algorithms.buffers import check_buffers, communicate_buffers
from vrl_jax.algorithms.linearity import require_linear
from vrl_jax.algorithms.probe import over_response, probe_at_rest, probe_leaves, probe_step


class VRLSGDState(NamedTuple):
  """State of :func:`vrl_sgd`.

  Attributes:
    inner: the inner optimizer's state, each worker's own.
    delta: Δ_i, each worker's own, like the parameters but at least float32; sums to zero over the workers.
    probe: the state of the inner optimizer that sees the constant gradient 1, one number per leaf; the same on every
      worker.
    response: how far the probe has moved since the last communication, one number per leaf; the same on every worker.

  >>> state = vrl_sgd(optax.sgd(0.1)).init({'kernel': jnp.ones((2, 2))})
  >>> state.delta['kernel'].tolist(), state.response['kernel'].shape  # Δ = 0; one number for the leaf
  ([[0.0, 0.0], [0.0, 0.0]], (1, 1))
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
  corrected: Any = True,
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
  model in the period, measured by running the inner optimizer on such a gradient too (`vrl_jax.algorithms.probe`), so
  schedules, short periods, momentum and Nesterov get their own. Where it is zero, Δ stays as it was.

  Args:
    inner: an optax optimizer that is linear in the gradient: `optax.sgd` with momentum, Nesterov, schedules, weight
      decay, masks. Others (Adam, clipping, signs) are refused; see :func:`vrl_jax.precede` for where they go.
    buffers: what a communication does to the optimizer's buffers (momentum): 'keep' leaves each worker its own,
      'mean' averages them (and sends them), 'reset' starts them anew. All three reach the same optimum.
    assume_linear: skips the test of linearity.
    corrected: which leaves have a Δ: True for all, or a tree of bools like the parameters (or a prefix of it), or a
      function from the parameters to one. The others are averaged as in Local SGD.
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
    unit = probe_leaves(params, 0)
    probe = inner.init(unit)
    if not assume_linear:
      require_linear(inner, unit, probe)
    delta = jax.tree.map(lambda x: jnp.zeros_like(x, wide_dtype(x)), params)
    return VRLSGDState(inner.init(params), delta, probe, unit)

  def update(grads, state, params=None, **extra_args):
    v = jax.tree.map(lambda g, d: (g.astype(d.dtype) - d).astype(g.dtype), grads, state.delta)
    updates, inner_state = inner.update(v, state.inner, params, **extra_args)
    step, probe = probe_step(inner, state.inner, state.probe, grads, extra_args)
    response = jax.tree.map(jnp.add, state.response, step)
    return updates, VRLSGDState(inner_state, state.delta, probe, response)

  def communicate(params, state):
    mean = mean_over_workers(params, axis_name)

    def new_delta(has_delta, delta, m, x, response):
      return delta + over_response(m - x.astype(m.dtype), response) if has_delta else delta

    has_delta = _whole_mask(corrected, params)
    delta = jax.tree.map(new_delta, has_delta, state.delta, mean, params, state.response)
    params = cast_like(mean, params)
    # Buffers that start the next period equal on all workers cancel in x̂ - x_i: the probe then starts at rest as well.
    probe = state.probe if buffers == 'keep' else probe_at_rest(inner, params, state.probe)
    inner_state = communicate_buffers(buffers, inner, params, state.inner, axis_name)
    return params, VRLSGDState(inner_state, delta, probe, probe_leaves(params, 0))

  return Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: cast_like(mean_over_workers(params, axis_name), params),
    correction=lambda state: state.delta,
  )


def _whole_mask(mask, params):
  mask = mask(params) if callable(mask) else mask
  return jax.tree.map(lambda m, part: jax.tree.map(lambda _: bool(m), part), mask, params)
