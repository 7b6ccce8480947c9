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
) -> Task:
  """The task of training a flax classifier.

  Args:
    model: called as `model(inputs, train=…)`, returns logits; may use the rng 'dropout' and a collection 'constants'.
    train: `input` [n, ...] and `label` [n].
    test: likewise.
    class_names: of the labels.
    constants: the collection 'constants', which is not trained.
  """

  def logits(params, frozen, inputs, **kwargs):
    return model.apply({'params': params, **frozen}, inputs, **kwargs)

  def init(rng):
    variables = model.init(rng, jnp.asarray(train['input'][:1]), train=False)
    return variables['params']

  def loss(params, frozen, batch, rng):
    values = logits(params, frozen, batch['input'], train=True, rngs={'dropout': rng})
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(values, batch['label']))

  def metrics(params, frozen, batch):
    values = logits(params, frozen, batch['input'], train=False)
    return {
      'loss': optax.softmax_cross_entropy_with_integer_labels(values, batch['label']),
      'accuracy': (jnp.argmax(values, axis=-1) == batch['label']).astype(jnp.float32),
    }

  frozen = {'constants': constants} if constants else {}
  return Task(init, loss, metrics, train, train['label'], test, frozen, class_names=class_names)
