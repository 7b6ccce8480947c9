"""What an algorithm sends, counted from the program itself."""

from typing import Any, NamedTuple

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from vrl_jax.algorithms.base import Algorithm
from vrl_jax.rounds import AXES

_COLLECTIVES = ('psum', 'all_gather', 'all_to_all', 'ppermute', 'pmin', 'pmax', 'reduce_scatter')


class Traffic(NamedTuple):
  """What one worker hands to collectives, in bytes.

  Attributes:
    per_step: in every local step.
    per_round: at the end of every round.
  """

  per_step: int
  per_round: int

  def communications(self, steps: int, rounds: int) -> int:
    """How often the workers have communicated after `steps` steps in `rounds` rounds."""
    return steps * (self.per_step > 0) + rounds * (self.per_round > 0)

  def ring_bytes(self, steps: int, rounds: int, workers: int) -> int:
    """What each worker has sent by then with ring all-reduces: 2(N−1)/N of the payload."""
    payload = steps * self.per_step + rounds * self.per_round
    return round(2 * (workers - 1) / workers * payload)


def traffic(algorithm: Algorithm, params: Any) -> Traffic:
  """Counts what `update` and `communicate` reduce over the workers, from their jaxprs.

  Args:
    algorithm: an algorithm made with `axis_name=rounds.AXES`.
    params: arrays or their shapes, without worker axes.
  """
  params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
  state = jax.eval_shape(algorithm.init, params)
  return Traffic(
    per_step=_reduced_bytes(algorithm.update, params, state, params),
    per_round=_reduced_bytes(algorithm.communicate, params, state),
  )


def _reduced_bytes(fun, *args):
  with_workers = jax.make_jaxpr(fun, axis_env=[(name, 2) for name in AXES])
  return _count(with_workers(*args).jaxpr)


def _count(jaxpr):
  total = 0
  for equation in jaxpr.eqns:
    if equation.primitive.name.split('_invariant')[0] in _COLLECTIVES:
      total += sum(int(np.prod(v.aval.shape)) * jnp.dtype(v.aval.dtype).itemsize for v in equation.invars)
    total += sum(_count(sub) for sub in jax.extend.core.jaxprs_in_params(equation.params))
  return total
