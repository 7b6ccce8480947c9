"""Classification with a flax model: cross-entropy and accuracy."""

from collections.abc import Sequence
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vrl_jax.tasks.task import Task


def classification_task(
  model: nn.Module,
  train: dict[str, np.ndarray],
  test: dict[str, np.ndarray],
  class_names: Sequence[str],
  constants: dict[str, Any] | None = None,
  dropout: bool = False,
) -> Task:
  """Makes the task of training a flax classifier.

  Args:
    model: maps inputs to logits. If it has a collection 'batch_stats', it is called with `train=True` in training.
    train: the training data, `input` [n, ...] and `label` [n].
    test: the test data, likewise.
    class_names: the name of each label.
    constants: the model's collection 'constants', which is not trained.
    dropout: whether the model has dropout. If so, it is called with `train=True` and the rng 'dropout' in training.

  >>> data = {'input': np.eye(2, dtype=np.float32), 'label': np.array([0, 1])}
  >>> task = classification_task(nn.Dense(2), train=data, test=data, class_names=['left', 'right'])
  >>> params = jax.tree.map(jnp.zeros_like, task.init(jax.random.key(0)))
  >>> task.metrics(params, task.frozen, data)['accuracy'].tolist()  # equal logits: the first class wins
  [1.0, 0.0]
  """

  example = np.array(train['input'][:1])  # a copy, so that `train` can be freed

  def init(rng):
    return model.init(rng, jnp.asarray(example))

  has_stats = 'batch_stats' in jax.eval_shape(init, jax.random.key(0))
  training: dict[str, Any] = {'train': True} if dropout or has_stats else {}

  def loss(params, frozen, batch, rng):
    variables = {'params': params, **frozen}
    logits, changed = model.apply(variables, batch['input'], rngs={'dropout': rng}, mutable=['batch_stats'], **training)
    mean = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch['label']))
    return (mean, changed['batch_stats']) if has_stats else mean

  def metrics(params, frozen, batch):
    logits = cast(jax.Array, model.apply({'params': params, **frozen}, batch['input']))
    return {
      'loss': optax.softmax_cross_entropy_with_integer_labels(logits, batch['label']),
      'accuracy': (jnp.argmax(logits, axis=-1) == batch['label']).astype(jnp.float32),
    }

  return Task(
    init=lambda rng: init(rng)['params'],
    loss=loss,
    metrics=metrics,
    train=train,
    labels=train['label'],
    test=test,
    frozen={'constants': constants} if constants else {},
    class_names=class_names,
    batch_stats=jax.tree.map(np.asarray, init(jax.random.key(0))['batch_stats']) if has_stats else (),
  )
