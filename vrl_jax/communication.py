"""What an algorithm sends, counted from the program itself."""

from typing import Any, NamedTuple

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from vrl_jax.algorithms.base import Algorithm
from vrl_jax.rounds import AXES

_REDUCTIONS = ('psum', 'all_gather', 'all_to_all', 'pmin', 'pmax', 'reduce_scatter')


class Traffic(NamedTuple):
  """What one worker hands to collectives, in bytes.

  Attributes:
    per_step: reduced over the workers in every local step.
    per_round: reduced over the workers at the end of every round.
    to_neighbours: sent directly to other workers in every local step.
    participation: the share of the workers that take part in a round.
  """

  per_step: int
  per_round: int
  to_neighbours: int = 0
  participation: float = 1.0

  def communications(self, steps: int, rounds: int) -> int:
    """How often the workers have communicated after `steps` steps in `rounds` rounds."""
    return steps * (self.per_step + self.to_neighbours > 0) + rounds * (self.per_round > 0)

  def ring_bytes(self, steps: int, rounds: int, workers: int) -> int:
    """What each worker has sent by then, with ring all-reduces: 2(N−1)/N of what is reduced.

    With partial participation the mean over the workers, if only the round's subset sends.
    """
    if workers == 1:
      return 0
    sends = max(1, round(self.participation * workers))
    reduced = steps * self.per_step * workers + rounds * self.per_round * sends
    return round(2 * (workers - 1) / workers * reduced / workers) + steps * self.to_neighbours


def traffic(algorithm: Algorithm, params: Any) -> Traffic:
  """Counts what `update` and `communicate` reduce over the workers, from their jaxprs.

  Args:
    algorithm: an algorithm made with `axis_name=rounds.AXES`.
    params: arrays or their shapes, without worker axes.
  """
  params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
  state = jax.eval_shape(algorithm.init, params)
  update = _jaxpr(algorithm.update, params, state, params)
  communicate = _jaxpr(algorithm.communicate, params, state)
  return Traffic(
    per_step=_count(update, _REDUCTIONS),
    per_round=_count(communicate, _REDUCTIONS),
    to_neighbours=_count(update, ('ppermute',)),
    participation=algorithm.participation,
  )


def _jaxpr(fun, *args):
  # One worker a device: with several, what moves inside a device would count as sent.
  return jax.make_jaxpr(fun, axis_env=[(AXES[0], 2), (AXES[1], 1)])(*args).jaxpr


def _count(jaxpr, primitives):
  total = 0
  for equation in jaxpr.eqns:
    if equation.primitive.name.split('_invariant')[0] in primitives:
      total += sum(int(np.prod(v.aval.shape)) * jnp.dtype(v.aval.dtype).itemsize for v in equation.invars)
    total += sum(_count(sub, primitives) for sub in jax.extend.core.jaxprs_in_params(equation.params))
  return total
