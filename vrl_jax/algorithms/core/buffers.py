"""The effect of a communication on the inner optimizer's buffers, such as momentum."""

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import Params, State
from vrl_jax.algorithms.core.averaging import mean_keeping_dtypes
from vrl_jax.algorithms.core.axes import AxisName

BUFFERS = ('keep', 'mean', 'reset')


def check_buffers(buffers: str) -> str:
  """Returns `buffers` if it is one of `BUFFERS`, else raises ValueError.

  >>> check_buffers('mean')
  'mean'
  >>> check_buffers('sum')
  Traceback (most recent call last):
    ...
  ValueError: buffers='sum', must be one of keep, mean, reset
  """
  if buffers not in BUFFERS:
    raise ValueError(f'buffers={buffers!r}, must be one of {", ".join(BUFFERS)}')
  return buffers


def communicate_buffers(
  buffers: str, inner: optax.GradientTransformation, params: Params, state: State, axis_name: AxisName
) -> State:
  """The inner optimizer's state after a communication.

  Only parameter-like leaves change, never a schedule's counter.

  Args:
    buffers: 'keep' leaves them as they are on each worker, 'mean' averages them over the workers (which sends them as
      well), 'reset' restores their initial values.
    inner: the optimizer that `state` belongs to.
    params: the parameters after the communication.
    state: the inner optimizer's state.
    axis_name: the workers' axis.

  >>> sgd = optax.sgd(0.1, momentum=0.9)
  >>> state = jax.vmap(sgd.init)(jnp.zeros(2))  # two workers
  >>> _, state = jax.vmap(sgd.update)(jnp.array([1.0, 3.0]), state)
  >>> for buffers in BUFFERS:
  ...   after = jax.vmap(lambda s: communicate_buffers(buffers, sgd, jnp.zeros(()), s, 'w'), axis_name='w')(state)
  ...   print(buffers, after[0].trace.tolist())
  keep [1.0, 3.0]
  mean [2.0, 2.0]
  reset [0.0, 0.0]
  """
  if buffers == 'keep':
    return state
  if buffers == 'reset':
    return with_buffers_of(inner, inner.init(params), state)
  return optax.tree_utils.tree_map_params(inner, lambda x: mean_keeping_dtypes(x, axis_name), state)


def with_buffers_of(inner: optax.GradientTransformation, buffers: State, rest: State) -> State:
  """Combines the parameter-like leaves of one state with the other leaves (counters, hyperparameters) of another.

  >>> sgd = optax.sgd(optax.linear_schedule(1.0, 0.0, 10), momentum=0.9)
  >>> fresh = sgd.init(jnp.zeros(2))
  >>> _, used = sgd.update(jnp.ones(2), fresh)
  >>> momentum, schedule = with_buffers_of(sgd, buffers=fresh, rest=used)
  >>> momentum.trace.tolist(), int(schedule.count)  # the initial momentum, the counter of the used state
  ([0.0, 0.0], 1)
  """
  is_buffer = optax.tree_utils.tree_map_params(inner, lambda _: True, buffers, transform_non_params=lambda _: False)
  # The probe of narrow parameters is wider than they are, and so are its hyperparameters; a state must keep its dtypes.
  return jax.tree.map(lambda take, b, r: b if take else jnp.asarray(r, b.dtype), is_buffer, buffers, rest)
