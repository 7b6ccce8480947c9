"""Quadratics whose optimum is known: worker i minimises f_i(x) = a_i‖x − c_i‖².

An example is a worker's (a_i, c_i) and a batch is that one example, so an epoch is a step. The paper's appendix is
N = 2, a = (1, 2), c = (−2b, b): f_1 = (x + 2b)², f_2 = 2(x − b)², with the minimum of their mean at 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vrl_jax.errors import UserError
from vrl_jax.tasks.base import Task


def make_task(config: Any) -> Task:
  """The quadratics that the config describes.

  Args:
    config: `a` and `c`, a number for each worker, or () to draw them from `seed`; `b`, which multiplies every c_i;
      `dimension` of x; `x0`, the start of every coordinate; `noise`, the deviation σ of Gaussian noise in each
      coordinate of the gradient.

  Returns:
    The task; its models are float64 if the run is.

  >>> from vrl_jax.config_files import load_config
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
    # The gradient of this inner product is the noise itself.
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
  if config.dimension < 1:
    raise UserError(f'dimension={config.dimension}, must be at least 1')
  rng = np.random.default_rng(config.seed)
  a = np.asarray(config.a or rng.uniform(0.5, 2.0, config.workers), float)
  c = np.asarray(config.c or rng.normal(size=(config.workers, config.dimension)), float)
  for name, value in (('a', a), ('c', c)):
    if len(value) != config.workers:
      raise UserError(f'{name} has {len(value)} numbers for workers={config.workers}: give one for each, or () to draw')
  if (a <= 0).any():
    raise UserError(f'a={tuple(a)}: every curvature must be positive')
  c = np.broadcast_to(c[:, None] if c.ndim == 1 else c, (config.workers, config.dimension))
  return a, config.b * c
