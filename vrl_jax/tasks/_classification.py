"""What the classification tasks share: a flax model's cross-entropy and accuracy."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vrl_jax.tasks.base import Task


def classification_task(
  model: nn.Module,
  train: dict[str, np.ndarray],
  test: dict[str, np.ndarray],
  class_names: Sequence[str],
  constants: dict[str, Any] | None = None,
  dropout: bool = False,
) -> Task:
  """The task of training a flax classifier.

  Args:
    model: maps inputs to logits; one with a collection 'batch_stats' is trained with `train=True`.
    train: `input` [n, ...] and `label` [n].
    test: likewise.
    class_names: of the labels.
    constants: the model's collection 'constants', which is not trained.
    dropout: whether the model has dropout: it is then trained with `train=True` and the rng 'dropout'.
  """

  example = np.array(train['input'][:1])  # a copy, so that the rest can be let go of

  def init(rng):
    return model.init(rng, jnp.asarray(example))

  has_stats = 'batch_stats' in jax.eval_shape(init, jax.random.key(0))
  in_training = {'train': True} if dropout or has_stats else {}

  def loss(params, frozen, batch, rng):
    variables = {'params': params, **frozen}
    logits, changed = model.apply(
      variables, batch['input'], rngs={'dropout': rng}, mutable=['batch_stats'], **in_training
    )
    mean = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch['label']))
    return (mean, changed['batch_stats']) if has_stats else mean

  def metrics(params, frozen, batch):
    logits = model.apply({'params': params, **frozen}, batch['input'])
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
