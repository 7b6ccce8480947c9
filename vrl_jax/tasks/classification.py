"""Classification: cross-entropy and accuracy."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from vrl_jax.errors import UserError
from vrl_jax.tasks.supervised import require_fields, supervised_task
from vrl_jax.tasks.task import Task

_CLASS_BITS = 20  # the classes are counted and listed


def classification_task(
  model: Any,
  train: dict[str, np.ndarray],
  test: dict[str, np.ndarray] | None = None,
  class_names: Sequence[str] | None = None,
  constants: dict[str, Any] | None = None,
  dropout: bool = False,
) -> Task:
  """Makes the task of training a classifier.

  Args:
    model: maps inputs to logits: a flax module, or a pair of functions `init(rng) -> params` and
      `apply(params, inputs) -> logits`. A module with a collection 'batch_stats' is called with `train=True` in
      training.
    train: the training data, `input` [n, ...] and `label`, integers [n].
    test: the test data, likewise, or None.
    class_names: the name of each label; None names them by their numbers.
    constants: a flax module's collection 'constants', which is not trained.
    dropout: whether a flax module has dropout. If so, it is called with `train=True` and the rng 'dropout' in training.

  >>> import flax.linen as nn, jax
  >>> data = {'input': np.eye(2, dtype=np.float32), 'label': np.array([0, 1])}
  >>> task = classification_task(nn.Dense(2), train=data, test=data, class_names=['left', 'right'])
  >>> params = jax.tree.map(jnp.zeros_like, task.init(jax.random.key(0)))
  >>> task.metrics(params, task.frozen, data)['accuracy'].tolist()  # equal logits: the first class wins
  [1.0, 0.0]
  """
  train = require_fields(train, ('input', 'label'), 'train')
  test = None if test is None else require_fields(test, ('input', 'label'), 'test')
  most = max(_largest_label(data['label'], what) for what, data in (('train', train), ('test', test)) if data)
  if class_names is None:
    class_names = [str(label) for label in range(most + 1)]
  elif most >= len(class_names):
    raise UserError(f'there is a label {most}, but class_names has {len(class_names)} names')

  def losses(logits, batch):
    if logits.shape[-1] < len(class_names):
      raise UserError(f'the model has {logits.shape[-1]} outputs for {len(class_names)} classes')
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch['label'])

  def metrics(logits, batch):
    return {'accuracy': (jnp.argmax(logits, axis=-1) == batch['label']).astype(jnp.float32)}

  return supervised_task(
    model,
    train,
    test,
    losses=losses,
    metrics=metrics,
    labels=train['label'],
    class_names=class_names,
    constants=constants,
    dropout=dropout,
  )


def _largest_label(label, what):
  if label.ndim != 1 or not np.issubdtype(label.dtype, np.integer):
    raise UserError(f"{what}['label'] is {label.dtype} {list(label.shape)}, must be integers [n]")
  if len(label) and label.min() < 0:
    raise UserError(f"{what}['label'] has the negative label {label.min()}, must be from 0")
  if len(label) and label.max() >= 2**_CLASS_BITS:
    raise UserError(
      f"{what}['label'] has the label {label.max()}, must be less than 2^{_CLASS_BITS}: number the classes"
    )
  return int(label.max()) if len(label) else 0
