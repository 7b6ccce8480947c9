r"""The probe: how far a constant gradient of 1 would have moved the model since the last communication.

That displacement, the response, is the divisor of variance reduction: it turns a difference of models into a gradient.
The inner optimizer itself is run on such a gradient, on one number per leaf, and its steps are added up. The response
is :math:`k\gamma` for plain SGD, :math:`\sum_t \gamma_t` for a schedule, right for a short first or last period, and
right with momentum or Nesterov inside. Nobody passes k or γ twice.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.base import Params, State, wide_dtype
from vrl_jax.algorithms.buffers import with_buffers_of


def probe_leaves(params: Params, value: float) -> Params:
  """One number per leaf, at least float32; the rank is kept because masks and labels look at it.

  >>> probe_leaves({'kernel': jnp.zeros((5, 3)), 'bias': jnp.zeros(3, jnp.bfloat16)}, 1.0)
  {'bias': Array([1.], dtype=float32), 'kernel': Array([[1.]], dtype=float32)}
  """
  return jax.tree.map(lambda x: jnp.full((1,) * x.ndim, value, wide_dtype(x)), params)


def probe_step(
  inner: optax.GradientTransformationExtraArgs, inner_state: State, probe: State, grads: Params, extra_args: Any
) -> tuple[Params, State]:
  """One step of the probe beside the real one.

  Args:
    inner: the inner optimizer.
    inner_state: its state before the real step. Counters and injected hyperparameters are taken from it, so that
      whoever changes them there changes both.
    probe: the probe's state.
    grads: anything with the shapes of the gradients.
    extra_args: what the real step gets besides.

  Returns:
    How far this step moves against a gradient of 1, one number per leaf, and the probe's new state.

  >>> sgd = optax.with_extra_args_support(optax.sgd(0.5, momentum=0.5))
  >>> params = jnp.zeros(3)
  >>> state, probe = sgd.init(params), sgd.init(probe_leaves(params, 0.0))
  >>> for _ in range(3):  # 0.5, then 0.5 (1 + 0.5), then 0.5 (1 + 0.5 + 0.25)
  ...   moved, probe = probe_step(sgd, state, probe, grads=params, extra_args={})
  ...   print(moved.tolist())
  [0.5]
  [0.75]
  [0.875]
  """
  probe = with_buffers_of(inner, probe, inner_state)
  # Zero parameters: weight decay is part of the gradient, not of the response to it.
  step, probe = inner.update(probe_leaves(grads, 1), probe, probe_leaves(grads, 0), **extra_args)
  return jax.tree.map(jnp.negative, step), probe


def probe_at_rest(inner: optax.GradientTransformation, params: Params, probe: State) -> State:
  """The probe's state with its buffers as at the start; counters go on.

  >>> sgd = optax.sgd(optax.linear_schedule(1.0, 0.0, 10), momentum=0.5)
  >>> probe = sgd.init(probe_leaves(jnp.zeros(3), 0.0))
  >>> _, probe = sgd.update(jnp.ones(1), probe)
  >>> rested = probe_at_rest(sgd, jnp.zeros(3), probe)
  >>> rested[0].trace.tolist(), int(rested[1].count)
  ([0.0], 1)
  """
  return with_buffers_of(inner, inner.init(probe_leaves(params, 0)), probe)


def over_response(moved: jax.Array, response: jax.Array) -> jax.Array:
  """`moved / response`, and 0 where the response is 0: a schedule that starts at 0 has moved nothing.

  >>> over_response(jnp.array([6.0, 0.0]), jnp.array([2.0, 0.0])).tolist()
  [3.0, 0.0]
  """
  return jnp.where(response != 0, moved / jnp.where(response != 0, response, 1), 0)
