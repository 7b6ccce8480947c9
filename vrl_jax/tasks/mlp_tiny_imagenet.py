"""An MLP on Inception V3 features of Tiny ImageNet."""

from typing import Any

import numpy as np

from vrl_jax.data.tiny_imagenet import load_tiny_imagenet_features
from vrl_jax.models.mlp import MLP
from vrl_jax.tasks._classification import classification_task
from vrl_jax.tasks.base import Task


def make_task(config: Any) -> Task:
  """2048 features, one hidden layer of 1,024, 200 classes."""
  splits = load_tiny_imagenet_features(config.data_dir)
  train, test = ({'input': s['feature'].astype(np.float32), 'label': s['label']} for s in (splits.train, splits.test))
  return classification_task(MLP(), train, test, splits.class_names)
