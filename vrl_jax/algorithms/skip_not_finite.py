"""Skips steps with non-finite gradients on all workers together."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from vrl_jax.algorithms.core.algorithm import State
from vrl_jax.algorithms.core.axes import AXIS, AxisName, worker_axes


class SkipState(NamedTuple):
  """State of :func:`skip_if_any_not_finite`.

  Attributes:
    inner: the wrapped transform's state, per worker.
    skipped: int32 scalar, the number of skipped steps; the same on every worker.

  >>> int(skip_if_any_not_finite(optax.sgd(0.1)).init(jnp.zeros(2)).skipped)
  0
  """

  inner: State
  skipped: jax.Array


def skip_if_any_not_finite(
  inner: optax.GradientTransformation, *, axis_name: AxisName = AXIS
) -> optax.GradientTransformationExtraArgs:
  """Skips a step on all workers if the gradient of any of them contains a NaN or an infinity.

  `optax.apply_if_finite` decides for each worker separately. Around :func:`vrl_jax.as_optax` that is wrong: a worker
  that skips a step is one step behind the others, so it communicates at a different time (and a program on several
  devices hangs) or takes fewer steps in the period (and VRL-SGD's Δ is wrong). Here one number is reduced at every
  step, so that all workers skip together; a skipped step changes nothing but the counter.

  Args:
    inner: usually `as_optax(algorithm, period)`.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The transform.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.5), axis_name='w')
  >>> tx = vrl_jax.skip_if_any_not_finite(vrl_jax.as_optax(algorithm, period=2), axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(tx.init)(params)
  >>> updates, state = jax.vmap(tx.update, axis_name='w')(jnp.array([1.0, jnp.nan]), state, params)
  >>> updates.tolist(), state.skipped.tolist(), state.inner.step.tolist()
  ([0.0, 0.0], [1, 1], [0, 0])
  """
  inner = optax.with_extra_args_support(inner)

  def init(params):
    return SkipState(inner.init(params), jnp.zeros([], jnp.int32))

  def update(grads, state, params=None, **extra_args):
    finite = [jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]
    all_finite = lax.pmin(jnp.all(jnp.stack(finite)).astype(jnp.int32), worker_axes(axis_name)) > 0
    updates, new = inner.update(grads, state.inner, params, **extra_args)
    updates = jax.tree.map(lambda u: jnp.where(all_finite, u, jnp.zeros_like(u)), updates)
    kept = jax.tree.map(lambda n, o: jnp.where(all_finite, n, o), new, state.inner)
    return updates, SkipState(kept, state.skipped + (1 - all_finite.astype(jnp.int32)))

  return optax.GradientTransformationExtraArgs(init, update)
