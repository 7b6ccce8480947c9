"""A task: data, model, loss and metrics."""

import importlib
import pathlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np

from vrl_jax.config.dotted import import_dotted, is_dotted, module_of, user_code
from vrl_jax.config.fields import as_config, check_fields, common_fields
from vrl_jax.config.table import Field
from vrl_jax.errors import UserError

# Modules in this folder that do not define a task.
_NOT_TASKS = ('check', 'classification', 'from_data', 'loss', 'precision', 'regression', 'supervised', 'task')


class Task(NamedTuple):
  """A learning problem.

  :func:`vrl_jax.tasks.classification_task`, :func:`vrl_jax.tasks.regression_task` and :func:`vrl_jax.tasks.loss_task`
  make one from data and a model or a loss; `make_task(config)` of a task's module makes the one of a config.

  Attributes:
    init: `(rng) -> params`.
    loss: `(params, frozen, batch, rng) -> scalar`, the mean over a mini-batch, for training.
    metrics: `(params, frozen, batch) -> {name: [batch]}`, one value per example, for evaluation; one of them is `loss`.
    train: a tree of NumPy arrays [examples, ...].
    labels: int [examples], by which the examples are divided among the workers.
    test: like `train`, or None.
    frozen: variables of the model that are not trained, such as an embedding table.
    model_metrics: `(params) -> {name: float}`, metrics of the parameters alone.
    class_names: the name of each label.
    batch_stats: the initial statistics of batch normalisation, if the model has any. `loss` and `metrics` then get the
      current statistics in `frozen['batch_stats']`, and `loss` returns `(scalar, new statistics)`.

  >>> import jax.numpy as jnp
  >>> values = lambda x, frozen, batch: {'loss': (x - batch['c']) ** 2}
  >>> task = Task(
  ...   init=lambda rng: jnp.zeros([]),
  ...   loss=lambda x, frozen, batch, rng: values(x, frozen, batch)['loss'].mean(),
  ...   metrics=values,
  ...   train={'c': np.array([1.0, 3.0], np.float32)},
  ...   labels=np.array([0, 1]),
  ... )
  >>> rng = jax.random.key(0)
  >>> float(task.loss(task.init(rng), task.frozen, task.train, rng))
  5.0
  """

  init: Callable[[jax.Array], Any]
  loss: Callable[[Any, Any, Any, jax.Array], jax.Array]
  metrics: Callable[[Any, Any, Any], dict[str, jax.Array]]
  train: Any
  labels: np.ndarray
  test: Any = None
  frozen: Any = ()
  model_metrics: Callable[[Any], dict[str, float]] = lambda params: {}
  class_names: Sequence[str] = ()
  batch_stats: Any = ()


def task_names() -> list[str]:
  """The names of the tasks, which are the modules in this folder.

  >>> task_names()
  ['lenet_mnist', 'mlp_tiny_imagenet', 'quadratic', 'textcnn_dbpedia']
  """
  modules = pkgutil.iter_modules([str(pathlib.Path(__file__).parent)])
  return sorted(module.name for module in modules if module.name not in _NOT_TASKS)


def make_task(config: Any) -> Task:
  """Makes the task that `config.task` names: a module in this folder, or `my_module:make_task`.

  Raises:
    UserError: there is no such task, or a function from outside the package raises an error or returns no task.

  >>> from vrl_jax.config.files import load_config
  >>> make_task(load_config('quadratic')).class_names
  ['f1', 'f2']
  """
  function, fields = _find(config.task)
  check_fields(fields, config)
  if not is_dotted(config.task):
    return function(config)
  name = f'task={config.task!r}'
  with user_code(name):
    task = function(config)
  if not isinstance(task, Task):
    raise UserError(f'{name} returns a {type(task).__name__}, must return a vrl_jax.Task')
  return task


def task_config(task: str) -> ml_collections.ConfigDict:
  """The common fields and those that a task adds, with their defaults.

  Args:
    task: a task of the package, or `my_module:make_task`, found from the current folder.

  >>> config = task_config('lenet_mnist')
  >>> config.task, config.dataset, config.period
  ('lenet_mnist', 'mnist', None)
  """
  config = as_config((*common_fields(), *task_fields(task)))
  config.task = task
  return config


def task_fields(task: str) -> tuple[Field, ...]:
  """The fields that a task adds to the common ones: the `FIELDS` of its module.

  >>> [field.name for field in task_fields('textcnn_dbpedia')]
  ['lowercase', 'length']
  """
  return _find(task)[1]


def _find(task):
  """The function that makes a task, and its fields."""
  if is_dotted(task):
    function = import_dotted('task', task)
    if not callable(function):
      raise UserError(f'task={task!r} is a {type(function).__name__}, must be a function of the config')
    fields = getattr(sys.modules[module_of(task)], 'FIELDS', ())
    _check_fields(task, fields)
    return function, tuple(fields)
  if task not in task_names():
    raise UserError(f'task={task!r}, must be one of {", ".join(task_names())}, or my_module:make_task')
  module = importlib.import_module(f'vrl_jax.tasks.{task}')
  return module.make_task, getattr(module, 'FIELDS', ())


def _check_fields(task, fields):
  if not isinstance(fields, tuple | list) or not all(isinstance(field, Field) for field in fields):
    raise UserError(f'task={task!r}: FIELDS must be a tuple of vrl_jax.tasks.Field')
  taken = {field.name for field in common_fields()}.intersection(field.name for field in fields)
  if taken:
    raise UserError(f'task={task!r}: FIELDS has {min(taken)!r}, which is a field of every config; choose another name')
