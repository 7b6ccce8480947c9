"""A task: data, model, loss and metrics."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np

import vrl_jax.tasks
from vrl_jax.config.fields import as_config, check_fields, common_fields
from vrl_jax.config.table import Field
from vrl_jax.errors import UserError

_NOT_TASKS = ('classification', 'task')  # modules in this folder that do not define a task


class Task(NamedTuple):
  """A learning problem; `vrl_jax.tasks.<name>.make_task(config)` makes one.

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
  modules = pkgutil.iter_modules(vrl_jax.tasks.__path__)
  return sorted(module.name for module in modules if module.name not in _NOT_TASKS)


def make_task(config: Any) -> Task:
  """Makes the task that `config.task` names.

  >>> from vrl_jax.config.files import load_config
  >>> make_task(load_config('quadratic')).class_names
  ['f1', 'f2']
  """
  module = _module(config.task)
  check_fields(_fields(module), config)
  return module.make_task(config)


def task_config(task: str) -> ml_collections.ConfigDict:
  """The common fields and those that a task adds, with their defaults.

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
  return _fields(_module(task))


def _module(task):
  if task not in task_names():
    raise UserError(f'task={task!r}, must be one of {", ".join(task_names())}')
  return importlib.import_module(f'vrl_jax.tasks.{task}')


def _fields(module):
  return getattr(module, 'FIELDS', ())
