"""What happens at a communication to the inner optimizer's buffers: momentum and the like."""

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.base import AxisName, Params, State, cast_like, mean_over_workers

BUFFERS = ('keep', 'mean', 'reset')


def check_buffers(buffers: str) -> str:
  """Returns `buffers` if it is one of `BUFFERS`, else raises ValueError."""
  if buffers not in BUFFERS:
    raise ValueError(f'buffers={buffers!r}, must be one of {", ".join(BUFFERS)}')
  return buffers


def communicate_buffers(
  buffers: str, inner: optax.GradientTransformation, params: Params, state: State, axis_name: AxisName
) -> State:
  """The inner optimizer's state after a communication.

  Only leaves that are shaped like the parameters are touched, never a schedule's counter.

  Args:
    buffers: 'keep' leaves each worker its own, 'mean' averages them over the workers (and sends them: that much more
      communication), 'reset' starts them anew.
    inner: the optimizer that made `state`.
    params: the parameters after the communication.
    state: the inner optimizer's state.
    axis_name: the workers' axis.
  """
  if buffers == 'keep':
    return state
  if buffers == 'reset':
    return with_buffers_of(inner, inner.init(params), state)
  return optax.tree_utils.tree_map_params(inner, lambda x: cast_like(mean_over_workers(x, axis_name), x), state)


def with_buffers_of(inner: optax.GradientTransformation, buffers: State, rest: State) -> State:
  """The parameter-like leaves of one inner state with everything else (counters, hyperparameters) of another."""
  is_buffer = optax.tree_utils.tree_map_params(inner, lambda _: True, buffers, transform_non_params=lambda _: False)
  # The probe is wider than narrow parameters and so are its hyperparameters; a state must keep its dtypes.
  return jax.tree.map(lambda mine, b, r: b if mine else jnp.asarray(r, b.dtype), is_buffer, buffers, rest)
