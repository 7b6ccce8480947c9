"""What a task is: data, model, loss and metrics."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import vrl_jax.tasks
from vrl_jax.errors import UserError


class Task(NamedTuple):
  """A learning problem; `vrl_jax.tasks.<name>.make_task(config)` makes one.

  Attributes:
    init: `(rng) -> params`.
    loss: `(params, frozen, batch, rng) -> scalar`, the mean over a mini-batch, for training.
    metrics: `(params, frozen, batch) -> {name: [batch]}`, a value for each example, for evaluation; has `loss`.
    train: a tree of NumPy arrays [examples, ...].
    labels: int [examples], by which the examples are divided among the workers.
    test: like `train`, or None.
    frozen: constants of the model that are not trained, such as an embedding table.
    model_metrics: `(params) -> {name: float}`, measurements of the model itself.
    class_names: of the labels.
    batch_stats: the statistics of batch normalisation at the start, if the model has any. `loss` and `metrics` then find
      the present ones in `frozen['batch_stats']`, and `loss` returns `(scalar, new statistics)`.

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
  """The tasks there are: the modules beside this one.

  >>> task_names()
  ['lenet_mnist', 'mlp_tiny_imagenet', 'quadratic', 'textcnn_dbpedia']
  """
  modules = pkgutil.iter_modules(vrl_jax.tasks.__path__)
  return sorted(module.name for module in modules if module.name != 'base' and not module.name.startswith('_'))


def make_task(config: Any) -> Task:
  """Makes the task that `config.task` names.

  >>> from vrl_jax.config_files import load_config
  >>> make_task(load_config('quadratic')).class_names
  ['f1', 'f2']
  """
  if config.task not in task_names():
    raise UserError(f'task={config.task!r}, must be one of {", ".join(task_names())}')
  return importlib.import_module(f'vrl_jax.tasks.{config.task}').make_task(config)
