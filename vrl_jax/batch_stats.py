"""What the workers do with the statistics of batch normalisation: a policy that whoever trains such a model must name.

In training a model is normalised by its mini-batch; the running statistics are for evaluation. Of eight workers with
different data each has others.

- 'average': they are averaged at every communication, and sent with the model.
- 'local': each worker keeps its own, and nothing is sent. The consensus model gets the moments of all workers' data
  together: the mean of the means, and the mean of the variances plus the variance of the means. (Their plain mean would
  be what 'average' has, because running averages are linear.)
- 'sync': every step normalises by the statistics of all workers' mini-batches, which are then the same everywhere; two
  all-reduces a layer in every step, one forwards and one backwards, of two numbers a feature.

The first two change nothing in training, only in what is evaluated.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from vrl_jax.algorithms.base import AxisName, cast_like, mean_over_workers

POLICIES = ('average', 'local', 'sync')


def communicated(policy: str | None, stats: Any, axis_name: AxisName) -> Any:
  """One worker's statistics after a communication.

  Args:
    policy: one of `POLICIES`, or None for a model without statistics.
    stats: one worker's collection 'batch_stats' of a flax model, or ().
    axis_name: the workers' axis.

  >>> import jax
  >>> after = lambda policy: jax.vmap(lambda s: communicated(policy, s, 'w'), axis_name='w')(jnp.array([1.0, 3.0]))
  >>> after('average').tolist(), after('local').tolist()
  ([2.0, 2.0], [1.0, 3.0])
  """
  return cast_like(mean_over_workers(stats, axis_name), stats) if policy == 'average' else stats


def evaluated(policy: str | None, stats: Any, axis_name: AxisName) -> Any:
  """The statistics of the consensus model; arguments as above.

  >>> import jax
  >>> stats = {'mean': jnp.array([1.0, 3.0]), 'var': jnp.array([0.5, 1.5])}  # two workers, one feature
  >>> pooled = jax.vmap(lambda s: evaluated('local', s, 'w'), axis_name='w')(stats)
  >>> pooled['mean'].tolist(), pooled['var'].tolist()  # 1 within the workers and 1 between them
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
