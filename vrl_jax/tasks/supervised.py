"""Supervised tasks: the part that classification and regression share."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vrl_jax.errors import UserError
from vrl_jax.tasks.precision import compute_like, widened
from vrl_jax.tasks.task import Task

Values = Callable[[jax.Array, Any], Any]


def supervised_task(
  model: Any,
  train: dict[str, np.ndarray],
  test: dict[str, np.ndarray] | None,
  *,
  losses: Values,
  metrics: Values,
  labels: np.ndarray,
  class_names: Sequence[str] = (),
  constants: dict[str, Any] | None = None,
  dropout: bool = False,
) -> Task:
  """Makes the task of minimising the mean of a loss that compares a model's outputs with the data.

  Args:
    model: a flax module, or a pair of functions: `init(rng) -> params` and `apply(params, inputs) -> outputs`.
    train: the training data; the model is applied to `input`.
    test: the test data, likewise, or None.
    losses: `(outputs, batch) -> [n]`.
    metrics: `(outputs, batch) -> {name: [n]}`, further metrics.
    labels: int [n], by which the examples are divided among the workers.
    class_names: the name of each label.
    constants: the collection 'constants' of a flax module, which is not trained.
    dropout: whether the flax module has dropout.

  >>> data = {'input': np.ones((2, 1), np.float32), 'sign': np.array([-1.0, 1.0], np.float32)}
  >>> linear = (lambda rng: jnp.ones(1), lambda w, x: x @ w)
  >>> hinge = lambda outputs, batch: jnp.maximum(0, 1 - outputs * batch['sign'])
  >>> task = supervised_task(linear, data, None, losses=hinge, metrics=lambda *args: {}, labels=np.array([0, 1]))
  >>> float(task.loss(task.init(None), task.frozen, data, None))
  1.0
  """
  parts = (losses, metrics)
  if isinstance(model, tuple) and len(model) == 2 and all(map(callable, model)):
    if constants or dropout:
      raise UserError('constants and dropout are for flax modules: keep constants in `apply`, or use loss_task')
    init, loss, evaluate, stats = _of_functions(model[0], model[1], *parts)
  elif all(callable(getattr(model, name, None)) for name in ('init', 'apply')):
    init, loss, evaluate, stats = _of_module(model, train, *parts, dropout=dropout)
  else:
    raise UserError(f'model={model!r:.80}, must be a flax.linen module or a pair of functions (init, apply)')
  return Task(
    init=init,
    loss=loss,
    metrics=evaluate,
    train=train,
    labels=labels,
    test=test,
    frozen={'constants': constants} if constants else {},
    class_names=class_names,
    batch_stats=stats,
  )


def _of_functions(init, apply, losses, metrics):
  def loss(params, frozen, batch, rng):
    del frozen, rng
    outputs = apply(params, compute_like(params, batch['input']))
    return jnp.mean(losses(widened(outputs), batch))

  def evaluate(params, frozen, batch):
    del frozen
    outputs = apply(params, batch['input'])
    return {'loss': losses(outputs, batch), **metrics(outputs, batch)}

  return init, loss, evaluate, ()


def _of_module(module, train, losses, metrics, *, dropout):
  example = np.array(train['input'][:1])  # a copy, so that `train` can be freed

  def init(rng):
    return module.init(rng, jnp.asarray(example))

  has_stats = 'batch_stats' in jax.eval_shape(init, jax.random.key(0))
  training: dict[str, Any] = {'train': True} if dropout or has_stats else {}

  def loss(params, frozen, batch, rng):
    variables = {'params': params, **frozen}
    inputs = compute_like(params, batch['input'])
    outputs, changed = module.apply(variables, inputs, rngs={'dropout': rng}, mutable=['batch_stats'], **training)
    mean = jnp.mean(losses(widened(outputs), batch))
    return (mean, changed['batch_stats']) if has_stats else mean

  def evaluate(params, frozen, batch):
    outputs = module.apply({'params': params, **frozen}, batch['input'])
    return {'loss': losses(outputs, batch), **metrics(outputs, batch)}

  stats = jax.tree.map(np.asarray, init(jax.random.key(0))['batch_stats']) if has_stats else ()
  return (lambda rng: init(rng)['params']), loss, evaluate, stats


def require_fields(data: Any, names: Sequence[str], what: str) -> dict[str, np.ndarray]:
  """The data with NumPy arrays; raises UserError unless it is a dict that has these fields.

  >>> require_fields({'input': [1.0, 2.0], 'label': [0, 1]}, ['input', 'label'], 'train')
  {'input': array([1., 2.]), 'label': array([0, 1])}
  >>> try:
  ...   require_fields({'x': [1.0, 2.0], 'label': [0, 1]}, ['input', 'label'], 'train')
  ... except UserError as error:
  ...   print(error)
  train has no 'input', only 'x', 'label'
  """
  if not isinstance(data, dict):
    raise UserError(f'{what} is a {type(data).__name__}, must be a dict of arrays {", ".join(map(repr, names))}')
  for name in names:
    if name not in data:
      raise UserError(f'{what} has no {name!r}, only {", ".join(map(repr, data))}')
  return jax.tree_util.tree_map_with_path(
    lambda path, x: numbers(x, f'{what}{jax.tree_util.keystr(path)}'), data, is_leaf=lambda x: not isinstance(x, dict)
  )


def numbers(data: Any, what: str) -> np.ndarray:
  """The data as a NumPy array; raises UserError unless they are numbers.

  >>> numbers([[1, 2], [3, 4]], 'x').shape
  (2, 2)
  >>> numbers([[1, 2], [3]], 'x')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: x is object [2], must be numbers
  """
  try:
    array = np.asarray(data)
  except ValueError:  # the rows have unequal lengths
    array = np.empty(len(data), object)
  if array.dtype.kind in 'OSUMm':
    raise UserError(f'{what} is {array.dtype} {list(array.shape)}, must be numbers')
  return array
