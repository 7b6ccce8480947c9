"""The metrics of a round that need all workers: reduced inside the compiled program, at log points only."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.algorithms.core.precision import widened
from vrl_jax.engine.state import WorkerState


def round_metrics(algorithm: Algorithm, state: WorkerState, direction: Any) -> dict[str, jax.Array]:
  """The metrics after a local step, before the communication; runs on one worker, under the axes `vrl_jax.AXES`.

  Args:
    algorithm: any algorithm with the default `axis_name`, or with `vrl_jax.AXES`.
    state: of this worker.
    direction: v_i = g_i − Δ_i of the step.

  Returns:
    Scalars, equal on all workers: `loss_sum` (mean over the workers of the losses since the last measurement),
    `consensus_distance` (1/N)Σ‖x_i − x̂‖², `variance_among_workers` (1/N)Σ‖v_i − v̄‖², `correction_norm`
    ((1/N)Σ‖Δ_i‖²)^½.

  >>> import optax, vrl_jax
  >>> algorithm = vrl_jax.local_sgd(optax.sgd(0.1), axis_name=AXES)
  >>> metrics = lambda x, v: round_metrics(algorithm, WorkerState(x, (), 0, x.sum()), v)
  >>> for axis in reversed(AXES):
  ...   metrics = jax.vmap(metrics, axis_name=axis)
  >>> x, v = jnp.array([[[1.0], [3.0]]]), jnp.zeros((1, 2, 1))  # two workers on one device
  >>> {name: float(value[0, 0]) for name, value in sorted(metrics(x, v).items())}
  {'consensus_distance': 1.0, 'correction_norm': 0.0, 'loss_sum': 2.0, 'variance_among_workers': 0.0}
  """
  correction = algorithm.correction(state.opt_state)
  return {
    'loss_sum': lax.pmean(state.loss_sum, AXES),
    'consensus_distance': _variance(state.params),
    'variance_among_workers': _variance(direction),
    'correction_norm': jnp.sqrt(lax.pmean(_squared_norm(correction), AXES)),
  }


def _variance(tree):
  """(1/N)Σ‖x_i − x̂‖²."""
  mean = mean_over_workers(tree, AXES)
  tree = widened(tree)
  return lax.pmean(_squared_norm(jax.tree.map(jnp.subtract, tree, mean)), AXES)


def _squared_norm(tree):
  dtype = jnp.result_type(float)
  return sum((jnp.sum(jnp.square(x.astype(dtype))) for x in jax.tree.leaves(tree)), jnp.zeros([], dtype))
