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


def task_names() -> list[str]:
  """The tasks there are: the modules beside this one."""
  modules = pkgutil.iter_modules(vrl_jax.tasks.__path__)
  return sorted(module.name for module in modules if module.name != 'base' and not module.name.startswith('_'))


def make_task(config: Any) -> Task:
  """Makes the task that `config.task` names."""
  if config.task not in task_names():
    raise UserError(f'task={config.task!r}, must be one of {", ".join(task_names())}')
  return importlib.import_module(f'vrl_jax.tasks.{config.task}').make_task(config)
