"""A task from a model or a loss and data, in the forms that `vrl_jax.fit` takes."""

from typing import Any

import numpy as np

from vrl_jax.errors import UserError
from vrl_jax.tasks.classification import classification_task
from vrl_jax.tasks.loss import loss_task
from vrl_jax.tasks.regression import regression_task
from vrl_jax.tasks.supervised import numbers
from vrl_jax.tasks.task import Task


def task_from_data(
  model: Any, data: Any = None, test: Any = None, params: Any = None, labels: np.ndarray | None = None
) -> Task:
  """Makes a task; see :func:`vrl_jax.fit` for the arguments.

  >>> linear = (lambda rng: np.zeros(2), lambda w, x: x @ w)
  >>> task = task_from_data(linear, (np.eye(2), np.array([0.5, 1.0])))
  >>> sorted(task.train)
  ['input', 'target']
  >>> task_from_data(lambda w, batch: (w - batch) ** 2, np.arange(3.0))
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: params=None: a loss needs the initial parameters, or a function (rng) -> params
  """
  if isinstance(model, Task):
    if data is not None or test is not None:
      raise UserError('a vrl_jax.Task has its data and test data: leave out the arguments data and test')
    task = model
  elif data is None:
    raise UserError('data=None, must be the training data')
  elif _is_model(model):
    task = _supervised(model, data, test)
  elif callable(model):
    if params is None:
      raise UserError('params=None: a loss needs the initial parameters, or a function (rng) -> params')
    task = loss_task(model, params, data, test)
  else:
    raise UserError(
      f'model={model!r:.80}, must be a flax.linen module, a pair of functions (init, apply), a loss or a vrl_jax.Task'
    )
  if params is not None:
    task = task._replace(init=params if callable(params) else lambda rng: params)
  return task if labels is None else task._replace(labels=np.asarray(labels), class_names=())


def _is_model(model):
  if isinstance(model, tuple | list):
    return len(model) == 2 and all(map(callable, model))
  return not isinstance(model, type) and all(callable(getattr(model, name, None)) for name in ('init', 'apply'))


def _supervised(model, data, test):
  model = tuple(model) if isinstance(model, list) else model
  train = _named(data, 'data')
  test = None if test is None else _named(test, 'test', as_target='target' in train)
  if 'label' in train:
    return classification_task(model, train, test)
  if 'target' in train:
    return regression_task(model, train, test)
  raise UserError(f"data has no 'label' and no 'target', only {', '.join(map(repr, train)) or 'nothing'}")


def _named(data, what, as_target=None):
  """The dict of a pair (x, y), with y as the label or the target."""
  if isinstance(data, dict):
    return data
  if not isinstance(data, tuple | list) or len(data) != 2:
    kind = f'{len(data)} items' if isinstance(data, tuple | list) else f'a {type(data).__name__}'
    raise UserError(f"{what} is {kind}, must be a pair (x, y), or a dict with 'input' and 'label' or 'target'")
  x, y = (numbers(array, f'{what}: {name}') for array, name in zip(data, 'xy', strict=True))
  y = y.astype(np.int32) if y.dtype == bool else y
  if as_target is None:
    as_target = y.ndim != 1 or not np.issubdtype(y.dtype, np.integer)
  return {'input': x, 'target' if as_target else 'label': y}
