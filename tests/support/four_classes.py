"""Four classes for four workers with mini-batches of four examples, with a checkpoint after every round."""

import flax.linen as nn
import numpy as np

from vrl_jax.config.fields import default_config
from vrl_jax.tasks import classification_task


def make_task(config):
  del config
  labels = np.repeat(np.arange(4), 16)
  inputs = (np.eye(8)[labels] + 0.3 * np.random.default_rng(0).normal(size=(64, 8))).astype(np.float32)
  model = nn.Sequential([nn.Dense(16), nn.relu, nn.Dense(4)])
  return classification_task(model, {'input': inputs, 'label': labels}, {'input': inputs[::3], 'label': labels[::3]})


def get_config():
  config = default_config()
  config.task = 'tests.support.four_classes:make_task'
  config.update(workers=4, batch_size=4, period=4, steps=24, eval_every=2.0, learning_rate=0.1, momentum=0.5)
  config.checkpoint_every = 1
  return config
