"""An algorithm as an ordinary optax transform that communicates inside `update`."""

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from vrl_jax.algorithms.core.algorithm import NEEDS_PARAMS, Algorithm, State
from vrl_jax.algorithms.skip_not_finite import SkipState


class AsOptaxState(NamedTuple):
  """State of :func:`as_optax`.

  Attributes:
    step: int32 scalar, the number of updates so far; the same on every worker.
    due: int32 scalar, the step that ends the current period; the same on every worker.
    algorithm: the algorithm's state.
    length: int32 scalar, the length of the current period, for an algorithm that also communicates inside of it.

  >>> import vrl_jax
  >>> tx = as_optax(vrl_jax.local_sgd(optax.sgd(0.1)), period=4)
  >>> state = tx.init(jnp.zeros(3))
  >>> int(state.step), int(state.due)
  (0, 4)
  """

  step: jax.Array
  due: jax.Array
  algorithm: State
  length: jax.Array | None = None


def as_optax(
  algorithm: Algorithm, period: int | Sequence[tuple[int, int]], first_period: int | None = None
) -> optax.GradientTransformationExtraArgs:
  """Wraps an algorithm as a `GradientTransformation` that communicates inside `update`, every `period` steps.

  It works in any training loop under `jax.pmap`, `jax.shard_map` or `jax.vmap` with the algorithm's `axis_name`. Its
  update is x_new - x, including the communication, so it must be the last link of an `optax.chain`. Its trajectory
  equals that of :class:`vrl_jax.Engine` up to rounding.

  Under `jax.vmap`, map the state with :func:`vrl_jax.state_axes`: otherwise the counters have a worker axis, and JAX
  converts the branch to a select, which communicates at every step.

  Do not wrap it in `optax.apply_if_finite`: each worker would decide separately whether to take a step, and the workers
  would no longer communicate at the same time. Use :func:`vrl_jax.skip_if_any_not_finite`.

  Args:
    algorithm: any Algorithm.
    period: k, the number of local steps between two communications; or stages, a sequence of (step, k) pairs that
      starts at step 0, where a period that starts at `step` or later has length k (see `vrl_jax.engine.periods`).
    first_period: the length of the first period; None means `period`, and 1 turns VRL-SGD into VRL-SGD-W.

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
  stages = _stages(period)
  first = stages[0][1] if first_period is None else first_period
  for name, value in [('period', k) for _, k in stages] + [('first_period', first)]:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
      raise ValueError(f'{name}={value!r}, must be an integer of at least 1')

  lengths = sorted({first, *(k for _, k in stages)})
  inside = any(len(algorithm.communications(k)) > 1 for k in lengths)

  def init(params):
    inner = algorithm.transform.init(params)
    length = jnp.asarray(first, jnp.int32) if inside else None
    return AsOptaxState(jnp.zeros([], jnp.int32), jnp.asarray(first, jnp.int32), inner, length)

  def communicate_inside(state, step, local):
    # Branch 0 does nothing; the others are the different communications of the plans.
    plans = {k: dict(algorithm.communications(k)) for k in lengths}
    functions = list(dict.fromkeys(function for plan in plans.values() for function in plan.values()))
    place, number = step - (state.due - state.length), jnp.zeros([], jnp.int32)
    for k, plan in plans.items():
      for at, function in plan.items():
        now = (state.length == k) & (place == at)
        number = jnp.where(now, 1 + functions.index(function), number)
    branches = [lambda s: s, *(lambda s, f=f: _varying_like(f(*s), s) for f in functions)]
    return lax.switch(number, branches, local)

  def update(grads, state, params=None, **extra_args):
    if params is None:
      raise ValueError(NEEDS_PARAMS)
    updates, inner = algorithm.transform.update(grads, state.algorithm, params, **extra_args)
    local = (optax.apply_updates(params, updates), inner)
    step = state.step + 1
    ends = step == state.due
    if inside:
      moved, inner = communicate_inside(state, step, local)
      length = jnp.where(ends, _at(stages, step), state.length)
    else:
      moved, inner = lax.cond(ends, lambda s: _varying_like(algorithm.communicate(*s), s), lambda s: s, local)
      length = None
    due = jnp.where(ends, step + _at(stages, step), state.due)
    return jax.tree.map(jnp.subtract, moved, params), AsOptaxState(step, due, inner, length)

  return optax.GradientTransformationExtraArgs(init, update)


def state_axes(state: Any, mapped: Any = 0, unmapped: Any = None) -> Any:
  """The `in_axes` and `out_axes` for `jax.vmap` of a state of :func:`as_optax`: all but its counters are mapped.

  The counters are the same on every worker. Without a worker axis they leave the branch a branch, so that a program
  over several devices communicates only every `period` steps.

  Args:
    state: the transform's state, or that of an `optax.chain` or :func:`vrl_jax.skip_if_any_not_finite` with it; shapes
      suffice (`jax.eval_shape(tx.init, params)`).
    mapped: what stands for the leaves of each worker: an axis of `jax.vmap`, or a `PartitionSpec` for `jax.shard_map`
      or `jax.device_put`.
    unmapped: what stands for the counters.

  Returns:
    A prefix of the tree `state`.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.5), axis_name='w')
  >>> tx = optax.chain(optax.clip(1.0), vrl_jax.as_optax(algorithm, period=2))
  >>> axes = state_axes(jax.eval_shape(tx.init, jnp.zeros(())))
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(tx.init, out_axes=axes)(params)
  >>> update = jax.vmap(tx.update, in_axes=(0, axes, 0), out_axes=(0, axes), axis_name='w')
  >>> for _ in range(2):
  ...   updates, state = update(jnp.array([0.0, 1.0]), state, params)
  ...   params = params + updates
  >>> params.tolist(), state[1].step.tolist()
  ([-0.5, -0.5], 2)
  """
  with_counters = {AsOptaxState: ('algorithm',), SkipState: ('inner',)}

  def axes(node):
    per_worker = with_counters.get(type(node))
    if per_worker is None:
      return mapped
    return type(node)(
      *(state_axes(x, mapped, unmapped) if n in per_worker else unmapped for n, x in node._asdict().items())
    )

  return jax.tree.map(axes, state, is_leaf=lambda node: type(node) in with_counters)


def _stages(period):
  if isinstance(period, numbers.Integral):
    return ((0, period),)
  stages = tuple(map(tuple, period)) if isinstance(period, Sequence) and not isinstance(period, str) else ()
  if not stages or any(len(stage) != 2 for stage in stages) or stages[0][0] != 0 or sorted(stages) != list(stages):
    raise ValueError(f'period={period!r}, must be an integer of at least 1, or (step, period) pairs from step 0 on')
  return stages


def _at(stages, step):
  k = jnp.asarray(stages[0][1], step.dtype)
  for start, later in stages[1:]:
    k = jnp.where(step >= start, later, k)
  return k


def _varying_like(tree, like):
  # Under `shard_map(check_vma=True)` a mean has a type that does not vary over the devices, unlike the value it
  # replaces; both branches of a cond need the same type. A result varies if an operand does, also of `select`, which
  # XLA removes again; the types have changed their names with every other version of JAX.
  return jax.tree.map(lambda x, l: lax.select(True, x, l), tree, like)
