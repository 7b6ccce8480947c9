"""A small classifier with batch normalisation, whose classes are well separated."""

import flax.linen as nn
import numpy as np

from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.tasks.classification import classification_task

FEATURES, CLASSES = 3, 4


class Normed(nn.Module):
  """Two normalised layers; the first one normalises the data, so its statistics do not depend on the parameters."""

  stats_axis: tuple[str, ...] | None = None

  @nn.compact
  def __call__(self, x, train=False):
    for features in (FEATURES, CLASSES):
      x = nn.Dense(features)(nn.BatchNorm(not train, momentum=0.9, axis_name=self.stats_axis)(x))
    return x


def make_task(config):
  rng = np.random.default_rng(0)
  label = np.repeat(np.arange(CLASSES), 40)
  x = (rng.normal(size=(len(label), FEATURES)) * (1 + label[:, None]) + 3 * label[:, None]).astype(np.float32)
  data = {'input': x, 'label': label.astype(np.int32)}
  model = Normed(stats_axis=AXES if config.batch_stats == 'sync' else None)
  return classification_task(model, data, data, [str(c) for c in range(CLASSES)])
