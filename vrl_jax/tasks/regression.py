"""Regression: squared and absolute error."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from vrl_jax.errors import UserError
from vrl_jax.tasks.loss import no_labels
from vrl_jax.tasks.supervised import require_fields, supervised_task
from vrl_jax.tasks.task import Task


def regression_task(
  model: Any,
  train: dict[str, np.ndarray],
  test: dict[str, np.ndarray] | None = None,
  labels: np.ndarray | None = None,
  class_names: Sequence[str] = (),
  constants: dict[str, Any] | None = None,
  dropout: bool = False,
) -> Task:
  """Makes the task of minimising the mean squared error of a model.

  Args:
    model: maps inputs to predictions; as in :func:`vrl_jax.tasks.classification_task`.
    train: the training data, `input` [n, ...] and `target`, of the shape of the predictions.
    test: the test data, likewise, or None.
    labels: int [n], by which the examples are divided among the workers, such as where each comes from; None if they
      have none: then `partition='by_class'` gives each worker a block of the examples in their order.
    class_names: the name of each label.
    constants: a flax module's collection 'constants', which is not trained.
    dropout: whether a flax module has dropout.

  >>> data = {'input': np.ones((4, 1), np.float32), 'target': np.array([1.0, 2.0, 4.0, 5.0], np.float32)}
  >>> linear = (lambda rng: jnp.zeros(1), lambda w, x: x @ w)
  >>> task = regression_task(linear, train=data)
  >>> float(task.loss(jnp.array([2.0]), task.frozen, data, None))  # (1 + 0 + 4 + 9) / 4
  3.5
  """
  train = require_fields(train, ('input', 'target'), 'train')
  test = None if test is None else require_fields(test, ('input', 'target'), 'test')

  def mean_error(error, outputs, batch):
    target = batch['target']
    if outputs.shape == (*target.shape, 1):  # would be broadcast to [n, n]
      outputs = outputs[..., 0]
    if outputs.shape != target.shape:
      raise UserError(
        f'the model predicts {list(outputs.shape[1:])} per example, but a target is {list(target.shape[1:])}'
      )
    return jnp.mean(error(outputs - target).reshape(len(target), -1), axis=1)

  return supervised_task(
    model,
    train,
    test,
    losses=lambda outputs, batch: mean_error(jnp.square, outputs, batch),
    metrics=lambda outputs, batch: {'absolute_error': mean_error(jnp.abs, outputs, batch)},
    labels=no_labels(train) if labels is None else np.asarray(labels),
    class_names=class_names,
    constants=constants,
    dropout=dropout,
  )
