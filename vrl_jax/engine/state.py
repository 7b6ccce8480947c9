"""What each worker carries from step to step, and the model that is evaluated."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.batch_stats import consensus_stats


class WorkerState(NamedTuple):
  """The training state of all workers; leaves have the leading axes [D, N/D].

  Attributes:
    params: x_i.
    opt_state: the state of the algorithm's transform.
    step: int32, the number of steps taken.
    loss_sum: the sum of the mini-batch losses since the last measurement.
    batch_stats: the running statistics of batch normalisation, or ().

  >>> import jax.numpy as jnp, optax, vrl_jax
  >>> params = jnp.zeros((1, 2, 3))  # one device with two workers
  >>> algorithm = vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name=AXES)
  >>> opt_state = jax.vmap(jax.vmap(algorithm.transform.init))(params)
  >>> state = WorkerState(params, opt_state, jnp.zeros((1, 2), int), jnp.zeros((1, 2)))
  >>> state.opt_state.delta.shape
  (1, 2, 3)
  """

  params: Any
  opt_state: Any
  step: jax.Array
  loss_sum: jax.Array
  batch_stats: Any = ()


class Model(NamedTuple):
  """The model to evaluate or export: `params`, and `batch_stats` or ().

  >>> Model(params=1.0).constants({}), Model(params=1.0, batch_stats={'mean': 0.5}).constants({})
  ({}, {'batch_stats': {'mean': 0.5}})
  """

  params: Any
  batch_stats: Any = ()

  def constants(self, frozen: Any) -> Any:
    """`frozen`, with the batch statistics if the model has them: the second argument of a task's loss and metrics."""
    return {**frozen, 'batch_stats': self.batch_stats} if self.batch_stats else frozen


def make_consensus(algorithm: Algorithm, policy: str | None) -> Callable[[Any, Any, Any], Model]:
  """Makes `(params, opt_state, batch_stats) -> Model` of one worker.

  Args:
    algorithm: any algorithm with the default `axis_name`, or with `vrl_jax.AXES`.
    policy: for the batch statistics, one of `vrl_jax.engine.batch_stats.POLICIES`; None for a model without them.

  >>> import jax.numpy as jnp, optax
  >>> from vrl_jax.algorithms import local_sgd
  >>> consensus = make_consensus(local_sgd(optax.sgd(0.1), axis_name=AXES), 'average')
  >>> for axis in reversed(AXES):
  ...   consensus = jax.vmap(consensus, (0, None, 0), axis_name=axis)
  >>> x = jnp.array([[1.0, 3.0]])  # two workers on one device
  >>> jax.tree.map(lambda leaf: leaf.tolist(), consensus(x, (), {'mean': x + 1}))
  Model(params=[[2.0, 2.0]], batch_stats={'mean': [[3.0, 3.0]]})
  """
  return lambda params, opt_state, stats: Model(
    algorithm.consensus(params, opt_state), consensus_stats(policy, stats, AXES)
  )
