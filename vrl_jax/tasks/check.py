"""Checks tasks from outside the package: the shapes of their data, loss and metrics."""

from typing import Any

import jax
import numpy as np

from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.config.dotted import user_code
from vrl_jax.errors import UserError
from vrl_jax.tasks.task import Task


def check_task(task: Any, batch_size: int, name: str) -> Task:
  """Returns the task if it can be trained; its functions are traced, not run.

  Args:
    task: what should be a `Task`.
    batch_size: the batch size of each worker.
    name: begins the message.

  Raises:
    UserError: it is no Task, its data do not fit together, or its loss or metrics do not return what they should.

  >>> data = {'x': np.zeros((4, 2), np.float32)}
  >>> loss = lambda params, frozen, batch, rng: batch['x'] @ params
  >>> task = Task(lambda rng: np.zeros(2), loss, None, train=data, labels=np.zeros(4, int))
  >>> check_task(task, batch_size=2, name="task='mine'")
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: task='mine': loss returns float32 [2], must return a scalar
  """
  if not isinstance(task, Task):
    raise UserError(f'{name}: is a {type(task).__name__}, must be a vrl_jax.Task')
  examples = _examples(task.train, f'{name}: train')
  labels = np.asarray(task.labels)
  if labels.shape != (examples,) or not np.issubdtype(labels.dtype, np.integer):
    raise UserError(f'{name}: labels are {labels.dtype} {list(labels.shape)}, must be integers [{examples}]')
  names = len(task.class_names)
  if labels.min() < 0 or names and labels.max() >= names:
    below = f' to {names - 1}, as there are {names} class_names' if names else ''
    raise UserError(f'{name}: labels are from {labels.min()} to {labels.max()}, must be from 0{below}')
  if task.test is not None:
    _examples(task.test, f'{name}: test')
    train, test = (jax.tree.map(lambda x: x.shape[1:], data) for data in (task.train, task.test))
    if train != test:
      raise UserError(f'{name}: an example of train has the shape {train}, one of test {test}')
  _check_functions(task, batch_size, name)
  return task


def _examples(data, what):
  """The number of examples."""
  leaves = jax.tree.leaves(data)
  if not leaves or not all(isinstance(x, np.ndarray) and x.ndim for x in leaves):
    raise UserError(f'{what} must be a tree of NumPy arrays [examples, ...]')
  sizes = sorted({len(x) for x in leaves})
  if len(sizes) > 1 or not sizes[0]:
    raise UserError(f'{what}: its arrays have {" and ".join(map(str, sizes))} examples, must have equally many')
  return sizes[0]


def _check_functions(task, batch_size, name):
  batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch_size, *x.shape[1:]), x.dtype), task.train)
  frozen = {**task.frozen, 'batch_stats': task.batch_stats} if task.batch_stats else task.frozen
  with user_code(f'{name}: init'):
    params, rng = jax.eval_shape(lambda rng: (task.init(rng), rng), jax.random.key(0))
  value = _shapes(f'{name}: loss', task.loss, params, frozen, batch, rng)
  if task.batch_stats:
    if not isinstance(value, tuple) or len(value) != 2:
      raise UserError(f'{name}: loss returns no pair, must return (scalar, new batch statistics)')
    value = value[0]
  if getattr(value, 'shape', None) != ():
    raise UserError(f'{name}: loss returns {_shape(value)}, must return a scalar')
  values = _shapes(f'{name}: metrics', task.metrics, params, frozen, batch)
  if not isinstance(values, dict) or 'loss' not in values:
    raise UserError(f"{name}: metrics returns no dict with the entry 'loss'")
  for key, value in values.items():
    if getattr(value, 'shape', None) != (batch_size,):
      raise UserError(
        f'{name}: metrics returns {key!r} as {_shape(value)}, must be one value per example, [{batch_size}]'
      )


def _shapes(what, fun, *args):
  with user_code(what):
    return jax.make_jaxpr(fun, axis_env=[(axis, 1) for axis in AXES], return_shape=True)(*args)[1]


def _shape(value):
  return f'{value.dtype} {list(value.shape)}' if hasattr(value, 'shape') else f'a {type(value).__name__}'
