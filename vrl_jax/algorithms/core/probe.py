r"""The probe: how far a constant gradient of 1 would have moved the model since the last communication.

That displacement, the response, is the divisor of variance reduction: it converts a difference of models into a
gradient. It is measured by running the inner optimizer on a gradient of 1, with one number per leaf, and summing its
steps. The response is :math:`k\gamma` for plain SGD and :math:`\sum_t \gamma_t` for a schedule, and it accounts for
short first and last periods, momentum and Nesterov. Neither k nor γ has to be passed a second time.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import Params, State
from vrl_jax.algorithms.core.buffers import with_buffers_of
from vrl_jax.algorithms.core.precision import wide_dtype


def probe_leaves(params: Params, value: float) -> Params:
  """One number per leaf, at least float32; the rank is kept because masks and labels may depend on `ndim`.

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
    inner_state: its state before the real step. The probe takes its counters and injected hyperparameters from here, so
      changing them in this state changes both.
    probe: the probe's state.
    grads: a tree with the shapes of the gradients.
    extra_args: the extra arguments of the real step.

  Returns:
    The displacement of this step against a gradient of 1, one number per leaf, and the probe's new state.

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
  # Zero parameters, because weight decay is part of the gradient and not of the response to it.
  step, probe = inner.update(probe_leaves(grads, 1), probe, probe_leaves(grads, 0), **extra_args)
  return jax.tree.map(jnp.negative, step), probe


def reset_probe(inner: optax.GradientTransformation, params: Params, probe: State) -> State:
  """The probe's state with its initial buffers; counters keep their values.

  >>> sgd = optax.sgd(optax.linear_schedule(1.0, 0.0, 10), momentum=0.5)
  >>> probe = sgd.init(probe_leaves(jnp.zeros(3), 0.0))
  >>> _, probe = sgd.update(jnp.ones(1), probe)
  >>> momentum, schedule = reset_probe(sgd, jnp.zeros(3), probe)
  >>> momentum.trace.tolist(), int(schedule.count)
  ([0.0], 1)
  """
  return with_buffers_of(inner, inner.init(probe_leaves(params, 0)), probe)


def divide_by_response(moved: jax.Array, response: jax.Array) -> jax.Array:
  """`moved / response`, and 0 where the response is 0, as after a period with a learning rate of 0.

  >>> divide_by_response(jnp.array([6.0, 0.0]), jnp.array([2.0, 0.0])).tolist()
  [3.0, 0.0]
  """
  return jnp.where(response != 0, moved / jnp.where(response != 0, response, 1), 0)
