"""The mean of points in `data_dir/points.npy`, one cluster per class."""

import pathlib

import jax.numpy as jnp
import numpy as np

from vrl_jax.tasks.task import Task


def write_points(data_dir, seed):
  """Writes 16 points in four clusters."""
  pathlib.Path(data_dir).mkdir(exist_ok=True)
  rng = np.random.default_rng(seed)
  np.save(
    pathlib.Path(data_dir, 'points.npy'), rng.normal(size=(16, 2)).astype(np.float32) + np.arange(4).repeat(4)[:, None]
  )


def make_task(config):
  points = np.load(pathlib.Path(config.data_dir, 'points.npy')).astype(np.float32)
  squares = lambda x, batch: jnp.sum(jnp.square(x[None] - batch['c']), axis=-1)
  return Task(
    init=lambda rng: np.ones(points.shape[1:], np.float32),
    loss=lambda x, frozen, batch, rng: squares(x, batch).mean(),
    metrics=lambda x, frozen, batch: {'loss': squares(x, batch)},
    train={'c': points},
    labels=np.arange(4).repeat(4),
    class_names=list('0123'),
  )
