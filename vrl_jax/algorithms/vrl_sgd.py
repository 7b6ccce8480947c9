"""Variance Reduced Local SGD."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.buffers import check_buffers, communicate_buffers
from vrl_jax.algorithms.core.evaluation import evaluated_mean
from vrl_jax.algorithms.core.exchange import Exchange, from_models, leaf_mask, with_exchange
from vrl_jax.algorithms.core.linearity import require_linear
from vrl_jax.algorithms.core.precision import cast_like, subtract_correction, wide_zeros
from vrl_jax.algorithms.core.probe import divide_by_response, probe_leaves, probe_step, reset_probe


class VRLSGDState(NamedTuple):
  """State of :func:`vrl_sgd`.

  Attributes:
    inner: the inner optimizer's state, per worker.
    delta: Δ_i, per worker, like the parameters but at least float32; sums to zero over the workers.
    probe: the state of the inner optimizer that gets the constant gradient 1, one number per leaf; the same on every
      worker.
    response: how far the probe has moved since the last communication, one number per leaf; the same on every worker.

  >>> state = vrl_sgd(optax.sgd(0.1)).transform.init({'kernel': jnp.ones((2, 2))})
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
  r"""Variance Reduced Local SGD (VRL-SGD): Local SGD without the drift, at the same communication cost.

  With :math:`x_i` the model of worker i (`params`), :math:`g_i` its stochastic gradient (`grads`) and
  :math:`\Delta_i` its correction (`state.delta`, zero at the start),

  .. math::

    v_i &= g_i(x_i) - \Delta_i, \qquad x_i \leftarrow x_i - \gamma v_i && \quad \text{at every local step} \\
    \hat x &= \frac{1}{N} \sum_j x_j, \qquad
    \Delta_i \leftarrow \Delta_i + \frac{\hat x - x_i}{k \gamma}, \qquad
    x_i \leftarrow \hat x && \quad \text{after } k \text{ steps.}

  The divisor :math:`k\gamma` is not computed from k and γ. It is how far a constant gradient of 1 would have moved the
  model in the period, measured by running the inner optimizer on such a gradient too (`vrl_jax.algorithms.core.probe`),
  so it is right for schedules, short periods, momentum and Nesterov. Where it is zero, Δ does not change.

  Args:
    inner: an optax optimizer that is linear in the gradient: `optax.sgd` with momentum, Nesterov, schedules, weight
      decay, masks. Others (Adam, clipping, signs) raise ValueError; :func:`vrl_jax.precede` applies them before Δ.
    buffers: what a communication does to the optimizer's buffers (momentum): 'keep' leaves them as they are on each
      worker, 'mean' averages them (and sends them), 'reset' restores their initial values. All three
      reach the same optimum.
    assume_linear: skips the linearity check.
    corrected: which leaves have a Δ: True for all of them, a tree of bools like the parameters (or a prefix of it), or
      a function from the parameters to such a tree. Leaves without a Δ are averaged as in Local SGD.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the parameters once per period (and the buffers with 'mean').

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.vrl_sgd(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> for _ in range(2):  # a period of k = 2 with the constant gradients 1 and 3
  ...   updates, state = jax.vmap(algorithm.transform.update)(jnp.array([1.0, 3.0]), state, params)
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
  mask = lambda params: leaf_mask(corrected, params)  # a dict would make the Algorithm unhashable

  def init(params):
    unit = probe_leaves(params, 0)
    probe = inner.init(unit)
    if not assume_linear:
      require_linear(inner, unit, probe)
    return VRLSGDState(inner.init(params), wide_zeros(params), probe, unit)

  def update(grads, state, params=None, **extra_args):
    v = subtract_correction(grads, state.delta)
    updates, inner_state = inner.update(v, state.inner, params, **extra_args)
    step, probe = probe_step(inner, state.inner, state.probe, grads, extra_args)
    response = jax.tree.map(jnp.add, state.response, step)
    return updates, VRLSGDState(inner_state, state.delta, probe, response)

  def communicate(params, state):
    mean = mean_over_workers(params, axis_name)

    def new_delta(has_delta, delta, m, x, response):
      return delta + divide_by_response(m - x.astype(m.dtype), response) if has_delta else delta

    delta = jax.tree.map(new_delta, mask(params), state.delta, mean, params, state.response)
    params = cast_like(mean, params)
    # Buffers that are equal on all workers cancel in x̂ - x_i, so the probe restarts without any.
    probe = state.probe if buffers == 'keep' else reset_probe(inner, params, state.probe)
    inner_state = communicate_buffers(buffers, inner, params, state.inner, axis_name)
    return params, VRLSGDState(inner_state, delta, probe, probe_leaves(params, 0))

  algorithm = Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: evaluated_mean(params, state.inner, axis_name),
    correction=lambda state: state.delta,
  )
  parts = Exchange(inner, axis_name, correction=from_models(), corrected=mask)
  return with_exchange(algorithm, parts) if buffers == 'keep' else algorithm
