"""Local SGD that moves each model a part of the way to the mean."""

import jax

import vrl_jax


def partial_average(inner, *, share: float = 0.5, axis_name=vrl_jax.AXIS):
  """Local SGD with partial averaging.

  Args:
    share: how far each model moves to the mean.
  """
  local = vrl_jax.local_sgd(inner, axis_name=axis_name)

  def communicate(params, state):
    mean, state = local.communicate(params, state)
    return jax.tree.map(lambda x, m: x + share * (m - x), params, mean), state

  return local._replace(communicate=communicate)
