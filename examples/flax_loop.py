"""A data-parallel flax loop. Two changed lines turn S-SGD into VRL-SGD, with a twentieth of the communication.

python examples/flax_loop.py

The original lines are in the comments `# was:`. The data are four clusters of points, one per worker, so Local SGD
would drift.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

import vrl_jax

WORKERS, STEPS = 4, 400
if __name__ == '__main__':
  vrl_jax.prepare_devices(WORKERS)  # virtual devices on a CPU


class Classifier(nn.Module):
  """Two layers."""

  @nn.compact
  def __call__(self, x):
    """Logits."""
    return nn.Dense(4)(nn.tanh(nn.Dense(16)(x)))


def train_step(state, x, y):
  """One step of one worker."""

  def loss_fn(params):
    logits = state.apply_fn({'params': params}, x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

  loss, grads = jax.value_and_grad(loss_fn)(state.params)
  # was: grads = jax.lax.pmean(grads, 'batch')
  return state.apply_gradients(grads=grads), loss


def main():
  """Trains, and returns the loss of worker 0's model on the data of all workers."""
  rng = np.random.default_rng(0)
  centres = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], np.float32)
  x = centres[:, None] + 0.4 * rng.normal(size=(WORKERS, 256, 2)).astype(np.float32)
  y = np.tile(np.arange(WORKERS, dtype=np.int32)[:, None], (1, 256))

  # was: tx = optax.sgd(0.1, momentum=0.9)
  tx = vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.sgd(0.1, momentum=0.9), axis_name='batch'), period=20)
  model = Classifier()
  params = model.init(jax.random.key(0), jnp.zeros((1, 2)))['params']
  state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
  state = jax.tree.map(lambda leaf: jnp.stack([leaf] * WORKERS), state)

  step = jax.pmap(train_step, axis_name='batch')
  for _ in range(STEPS):
    batch = rng.integers(0, 256, 32)
    state, _ = step(state, x[:, batch], y[:, batch])

  params = jax.tree.map(lambda leaf: leaf[0], state.params)
  logits = model.apply({'params': params}, x.reshape(-1, 2))
  return float(optax.softmax_cross_entropy_with_integer_labels(logits, y.ravel()).mean())


if __name__ == '__main__':
  print(f'loss {main():.4f}')
