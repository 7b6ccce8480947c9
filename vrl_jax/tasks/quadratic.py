"""Quadratics with a known optimum: worker i minimises f_i(x) = a_i‖x − c_i‖².

Each worker has one example, (a_i, c_i), so an epoch is one step. The paper's appendix is N = 2, a = (1, 2),
c = (−2b, b): f_1 = (x + 2b)², f_2 = 2(x − b)², whose mean has its minimum at 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vrl_jax.config.checks import finite, integer, number
from vrl_jax.config.table import Field, Role
from vrl_jax.errors import UserError
from vrl_jax.tasks.task import Task

FIELDS = (
  Field('a', (), tuple, Role.PROBLEM, 'the curvatures a_i, one per worker; () draws them'),
  Field('c', (), tuple, Role.PROBLEM, 'the minima c_i, one per worker; () draws them'),
  Field('b', 1.0, float, Role.PROBLEM, 'factor of every c_i', finite),
  Field('dimension', 1, int, Role.PROBLEM, 'dimension of x', integer(1, bits=24)),
  Field('x0', 1.0, float, Role.PROBLEM, 'initial value of every coordinate', finite),
  Field('noise', 0.0, float, Role.PROBLEM, 'deviation of the noise in each coordinate of a gradient', number()),
)


def make_task(config: Any) -> Task:
  """Makes the task.

  Args:
    config: has the fields of `FIELDS`; `a` and `c` are drawn from `seed` if they are ().

  Returns:
    The task. The model is float64 with `jax_enable_x64`.

  >>> from vrl_jax.config.files import load_config
  >>> task = make_task(load_config('quadratic'))  # the paper's appendix with b = 100
  >>> task.train['c'].tolist(), task.model_metrics(np.array([1.0]))['distance_to_optimum']
  ([[-200.0], [100.0]], 1.0)
  """
  a, c = _coefficients(config)
  dtype = np.dtype(jnp.result_type(float))
  a, c = a.astype(dtype), c.astype(dtype)
  optimum = (a[:, None] * c).sum(axis=0) / a.sum()
  noise = config.noise

  def values(x, batch):
    return batch['a'] * jnp.sum(jnp.square(x[None] - batch['c']), axis=1)

  def loss(x, frozen, batch, rng):
    del frozen
    exact = jnp.mean(values(x, batch))
    # The gradient of this inner product is the noise.
    return exact + noise * jnp.vdot(jax.random.normal(rng, x.shape, x.dtype), x) if noise else exact

  return Task(
    init=lambda rng: np.full(c.shape[1], config.x0, dtype),
    loss=loss,
    metrics=lambda x, frozen, batch: {'loss': values(x, batch)},
    train={'a': a, 'c': c},
    labels=np.arange(len(a)),
    model_metrics=lambda x: {
      'distance_to_optimum': float(np.linalg.norm(x - optimum)),
      'squared_gradient': float(np.sum(np.square(2 * a.mean() * (x - optimum)))),
    },
    class_names=[f'f{i + 1}' for i in range(len(a))],
  )


def _coefficients(config):
  if config.batch_size != 1:
    raise UserError(f'batch_size={config.batch_size}: a worker of the quadratic task has one example, so it must be 1')
  rng = np.random.default_rng(config.seed)
  a = _given(config, 'a', ()) if config.a else rng.uniform(0.5, 2.0, config.workers)
  c = _given(config, 'c', (config.dimension,)) if config.c else rng.normal(size=(config.workers, config.dimension))
  if (a <= 0).any():
    raise UserError(f'a={tuple(a)}: every curvature must be positive')
  c = np.broadcast_to(c[:, None] if c.ndim == 1 else c, (config.workers, config.dimension))
  return a, config.b * c


def _given(config, name, shape):
  """The config's numbers, one per worker or, with a shape, one array per worker."""
  value = config[name]
  allowed = f'numbers, or tuples of dimension={shape[0]} numbers, one per worker' if shape else 'a tuple of numbers'
  try:
    array = np.asarray(value, float)
  except (TypeError, ValueError) as error:
    raise UserError(f'{name}={value!r}, must be {allowed}') from error
  if array.shape[1:] not in ((), shape):
    raise UserError(f'{name}={value!r}, must be {allowed}')
  if len(array) != config.workers:
    raise UserError(f'{name} has {len(array)} numbers for workers={config.workers}: give one for each, or () to draw')
  if not np.isfinite(array).all():
    raise UserError(f'{name}={value!r}, must be finite')
  return array
