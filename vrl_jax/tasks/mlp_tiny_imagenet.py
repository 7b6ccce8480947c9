"""An MLP on Inception V3 features of Tiny ImageNet."""

from typing import Any

import numpy as np

from vrl_jax.data.sources.tiny_imagenet import load_tiny_imagenet_features
from vrl_jax.models.mlp import MLP
from vrl_jax.tasks.classification import classification_task
from vrl_jax.tasks.task import Task


def make_task(config: Any) -> Task:
  """Makes the task: 2,048 features, one hidden layer of 1,024 units, 200 classes.

  >>> import pathlib, tempfile
  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('mlp_tiny_imagenet')
  >>> with tempfile.TemporaryDirectory() as config.data_dir:
  ...   x, y = np.zeros((3, 2048), np.float16), np.array([0, 7, 199])
  ...   np.savez(pathlib.Path(config.data_dir, 'inception_v3_features.npz'), x_train=x, y_train=y, x_test=x, y_test=y)
  ...   task = make_task(config)
  >>> task.train['input'].dtype, len(task.class_names)
  (dtype('float32'), 200)
  """
  splits = load_tiny_imagenet_features(config.data_dir)
  train, test = ({'input': s['feature'].astype(np.float32), 'label': s['label']} for s in (splits.train, splits.test))
  return classification_task(MLP(), train, test, splits.class_names)
