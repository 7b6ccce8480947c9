"""Batch normalisation: what happens to the running statistics of the workers. The user must choose a policy.

In training, activations are normalised by the statistics of the mini-batch; the running statistics are for evaluation.
Workers with different data have different running statistics.

- 'average': averaged at every communication, and sent with the model.
- 'local': each worker keeps its statistics, and nothing is sent. The consensus model gets the pooled moments of all workers'
  data: the mean of the means, and the mean of the variances plus the variance of the means. (Their plain mean would
  equal that of 'average', because running averages are linear.)
- 'sync': every step normalises by the statistics of all workers' mini-batches, so the running statistics are equal
  everywhere. This takes two all-reduces per layer and step, one forwards and one backwards, of two numbers per feature.

The first two do not change training, only the evaluated model.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AxisName
from vrl_jax.algorithms.core.precision import cast_like

POLICIES = ('average', 'local', 'sync')


def communicate_stats(policy: str | None, stats: Any, axis_name: AxisName) -> Any:
  """The statistics of one worker after a communication.

  Args:
    policy: one of `POLICIES`, or None for a model without statistics.
    stats: the flax collection 'batch_stats' of one worker, or ().
    axis_name: of the workers.

  >>> import jax
  >>> after = lambda policy: jax.vmap(lambda s: communicate_stats(policy, s, 'w'), axis_name='w')(jnp.array([1.0, 3.0]))
  >>> after('average').tolist(), after('local').tolist()
  ([2.0, 2.0], [1.0, 3.0])
  """
  return cast_like(mean_over_workers(stats, axis_name), stats) if policy == 'average' else stats


def consensus_stats(policy: str | None, stats: Any, axis_name: AxisName) -> Any:
  """The statistics of the consensus model; arguments as for `communicate_stats`.

  >>> import jax
  >>> stats = {'mean': jnp.array([1.0, 3.0]), 'var': jnp.array([0.5, 1.5])}  # two workers, one feature
  >>> pooled = jax.vmap(lambda s: consensus_stats('local', s, 'w'), axis_name='w')(stats)
  >>> pooled['mean'].tolist(), pooled['var'].tolist()  # a variance of 1 within the workers, 1 between them
  ([2.0, 2.0], [2.0, 2.0])
  """
  if policy == 'local':
    return cast_like(_pooled(stats, axis_name), stats)
  return cast_like(mean_over_workers(stats, axis_name), stats) if policy == 'average' else stats


def _pooled(stats, axis_name):
  if not isinstance(stats, Mapping):
    return mean_over_workers(stats, axis_name)
  if not {'mean', 'var'} <= stats.keys():
    return {name: _pooled(part, axis_name) for name, part in stats.items()}
  mean = mean_over_workers(stats, axis_name)
  between = mean_over_workers(jnp.square(stats['mean'] - mean['mean']), axis_name)
  return mean | {'var': mean['var'] + between}
