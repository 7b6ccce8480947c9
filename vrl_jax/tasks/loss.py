"""Any loss on any data: a function of parameters and a batch, and a tree of NumPy arrays."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vrl_jax.tasks.task import Task


def loss_task(
  loss: Callable[..., jax.Array],
  params: Any,
  train: Any,
  test: Any = None,
  *,
  metrics: Callable[[Any, Any], dict[str, jax.Array]] | None = None,
  labels: np.ndarray | None = None,
  class_names: Sequence[str] = (),
) -> Task:
  """Makes the task of minimising a loss.

  Args:
    loss: `(params, batch) -> scalar`, the mean over the examples of a batch, or `-> [n]`, the loss of each. If it has a
      parameter named `rng`, it is given a random key in training, and None in evaluation.
    params: the initial parameters, or a function `(rng) -> params`.
    train: the training data, a tree of arrays [examples, ...].
    test: the test data, likewise, or None.
    metrics: `(params, batch) -> {name: [n]}`, further values for each example, which are logged as means.
    labels: int [n], by which the examples are divided among the workers; None if they have none: then
      `partition='by_class'` gives each worker a block of the examples in their order.
    class_names: the name of each label.

  >>> targets = np.array([1.0, 2.0, 4.0, 5.0], np.float32)
  >>> task = loss_task(lambda x, batch: jnp.mean((x - batch) ** 2), params=jnp.zeros([]), train=targets)
  >>> float(task.loss(2.0, task.frozen, targets, None)), task.metrics(2.0, task.frozen, targets)['loss'].tolist()
  (3.5, [1.0, 0.0, 4.0, 9.0])
  """
  takes_rng = 'rng' in inspect.signature(loss).parameters
  train, test = jax.tree.map(np.asarray, (train, test))

  def values(params, batch, rng=None):
    return jnp.asarray(loss(params, batch, rng=rng) if takes_rng else loss(params, batch))

  def by_example(params, frozen, batch):
    del frozen
    if jax.eval_shape(values, params, batch).ndim:
      each = values(params, batch)
    else:
      each = jax.vmap(lambda example: values(params, jax.tree.map(lambda x: x[None], example)))(batch)
    return {'loss': each, **(metrics(params, batch) if metrics else {})}

  return Task(
    init=params if callable(params) else lambda rng: params,
    loss=lambda params, frozen, batch, rng: jnp.mean(values(params, batch, rng)),
    metrics=by_example,
    train=train,
    labels=no_labels(train) if labels is None else np.asarray(labels),
    test=test,
    class_names=class_names,
  )


def no_labels(data: Any) -> np.ndarray:
  """Labels for examples that have none: all are of one class.

  >>> no_labels({'x': np.zeros((3, 2))})
  array([0, 0, 0])
  """
  leaves = jax.tree.leaves(data)
  return np.zeros(len(leaves[0]) if leaves and leaves[0].ndim else 0, int)
