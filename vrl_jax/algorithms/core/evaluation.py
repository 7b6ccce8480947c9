"""The parameters to evaluate: those of a schedule-free optimizer differ from the ones that it trains."""

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import Params, State
from vrl_jax.algorithms.core.averaging import mean_keeping_dtypes
from vrl_jax.algorithms.core.axes import AxisName
from vrl_jax.algorithms.core.precision import cast_like, wide_dtype


def evaluated_mean(params: Params, inner: State, axis_name: AxisName) -> Params:
  """The mean over the workers of :func:`evaluation_params`, with the dtypes of `params`: a `consensus`.

  >>> jax.vmap(lambda x: evaluated_mean(x, (), 'w'), axis_name='w')(jnp.array([1.0, 3.0])).tolist()
  [2.0, 2.0]
  """
  return mean_keeping_dtypes(evaluation_params(params, inner), axis_name)


def evaluation_params(params: Params, inner: State) -> Params:
  """The parameters to evaluate after a step: `params`, or x of a schedule-free optimizer, whose `params` are y.

  Args:
    params: the parameters of one worker.
    inner: its state of the inner optimizer, in which :func:`optax.contrib.schedule_free` may be at any depth.

  >>> sgd, y = optax.contrib.schedule_free_sgd(0.5, b1=0.5), jnp.array([4.0])
  >>> state = sgd.init(y)
  >>> for _ in range(2):
  ...   updates, state = sgd.update(y, state, y)
  ...   y = y + updates
  >>> y.tolist(), evaluation_params(y, state).tolist()
  ([1.25], [1.5])
  """
  is_schedule_free = lambda node: isinstance(node, optax.contrib.ScheduleFreeState)
  for state in filter(is_schedule_free, jax.tree.leaves(inner, is_leaf=is_schedule_free)):
    params = _average(params, state)
  return params


def _average(params, state):
  def average(z, y):
    if isinstance(z, optax.MaskedNode):
      return y
    dtype = wide_dtype(y)
    wide = state._replace(b1=jnp.asarray(state.b1, dtype), z=z.astype(dtype))
    return cast_like(optax.contrib.schedule_free_eval_params(wide, y.astype(dtype)), y)

  return jax.tree.map(average, state.z, params, is_leaf=lambda z: isinstance(z, optax.MaskedNode))
