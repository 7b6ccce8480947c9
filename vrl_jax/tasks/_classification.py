"""What the classification tasks share: a flax model's cross-entropy and accuracy."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
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
    model: maps inputs to logits.
    train: `input` [n, ...] and `label` [n].
    test: likewise.
    class_names: of the labels.
    constants: the model's collection 'constants', which is not trained.
    dropout: whether the model has dropout: it is then trained with `train=True` and the rng 'dropout'.
  """

  def logits(params, frozen, inputs, **kwargs):
    return model.apply({'params': params, **frozen}, inputs, **kwargs)

  def init(rng):
    return model.init(rng, jnp.asarray(train['input'][:1]))['params']

  def loss(params, frozen, batch, rng):
    in_training = {'train': True, 'rngs': {'dropout': rng}} if dropout else {}
    values = logits(params, frozen, batch['input'], **in_training)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(values, batch['label']))

  def metrics(params, frozen, batch):
    values = logits(params, frozen, batch['input'])
    return {
      'loss': optax.softmax_cross_entropy_with_integer_labels(values, batch['label']),
      'accuracy': (jnp.argmax(values, axis=-1) == batch['label']).astype(jnp.float32),
    }

  frozen = {'constants': constants} if constants else {}
  return Task(init, loss, metrics, train, train['label'], test, frozen, class_names=class_names)
