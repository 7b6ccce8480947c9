"""An algorithm as a plain optax transform that communicates by itself."""

import numbers
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from vrl_jax.algorithms.base import Algorithm, State


class AsOptaxState(NamedTuple):
  """State of :func:`as_optax`.

  Attributes:
    step: int32 scalar, the number of updates so far; the same on every worker.
    algorithm: the algorithm's state.
  """

  step: jax.Array
  algorithm: State


def as_optax(
  algorithm: Algorithm, period: int, first_period: int | None = None
) -> optax.GradientTransformationExtraArgs:
  """Wraps an algorithm as a `GradientTransformation` that communicates inside `update`, every `period` steps.

  A drop-in for any loop under `jax.pmap`, `jax.shard_map` or `jax.vmap` whose axis bears the algorithm's `axis_name`.
  Its update is x_new - x, communication included, so it must be the last link of an `optax.chain`. The trajectory is
  that of the round engine, to rounding. (Under `vmap` JAX turns the branch into a selection, and the mean is computed
  at every step; the engine of `vrl_jax.rounds` has no branch.)

  Args:
    algorithm: any Algorithm.
    period: k, the number of local steps between two communications.
    first_period: the length of the first period; None is `period`, 1 makes VRL-SGD into VRL-SGD-W.

  Returns:
    The transform; its `update` needs `params`.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> tx = optax.chain(
  ...   optax.clip_by_global_norm(10.0),
  ...   vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.sgd(0.05), axis_name='w'), period=4),
  ... )
  >>> target = jnp.array([-1.0, 3.0])  # two workers: f_i(x) = a_i (x - target_i)^2, optimum 5/3
  >>> a = jnp.array([1.0, 2.0])
  >>> def step(x, state, a, target):
  ...   updates, state = tx.update(2 * a * (x - target), state, x)
  ...   return optax.apply_updates(x, updates), state
  >>> step = jax.jit(jax.vmap(step, axis_name='w'))
  >>> x, state = jnp.zeros(2), jax.vmap(tx.init)(jnp.zeros(2))
  >>> for _ in range(200):
  ...   x, state = step(x, state, a, target)
  >>> bool(jnp.allclose(x, 5 / 3))
  True
  """
  first_period = period if first_period is None else first_period
  for name, value in (('period', period), ('first_period', first_period)):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
      raise ValueError(f'{name}={value!r}, must be a whole number of at least 1')

  def init(params):
    return AsOptaxState(jnp.zeros([], jnp.int32), algorithm.init(params))

  def update(grads, state, params=None, **extra_args):
    if params is None:
      raise ValueError(optax.NO_PARAMS_MSG)
    updates, inner = algorithm.update(grads, state.algorithm, params, **extra_args)
    local = optax.apply_updates(params, updates)
    step = state.step + 1
    after_first = step - first_period
    due = (after_first >= 0) & (after_first % period == 0)
    local = (local, inner)
    moved, inner = lax.cond(due, lambda s: _varying_like(algorithm.communicate(*s), s), lambda s: s, local)
    return jax.tree.map(jnp.subtract, moved, params), AsOptaxState(step, inner)

  return optax.GradientTransformationExtraArgs(init, update)


def _varying_like(tree, like):
  # Under `shard_map(check_vma=True)` a mean is typed as equal on all devices and what it replaces is not; both branches
  # of a cond need one type. Elsewhere nothing is typed as varying.
  def cast(x, l):
    missing = tuple(jax.typeof(l).manual_axis_type.varying - jax.typeof(x).manual_axis_type.varying)
    return lax.pcast(x, missing, to='varying') if missing else x

  return jax.tree.map(cast, tree, like)
