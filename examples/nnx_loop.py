"""A data-parallel loop in flax's NNX. Two changed lines turn S-SGD into VRL-SGD, with a twentieth of the communication.

python examples/nnx_loop.py

The original lines are in the comments `# was:`. The data are four clusters of points, one per worker, as in
flax_loop.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import vrl_jax

WORKERS, STEPS = 4, 400
if __name__ == '__main__':
  vrl_jax.prepare_devices(WORKERS)  # virtual devices on a CPU


class Classifier(nnx.Module):
  """Two layers."""

  def __init__(self, rngs):
    self.hidden, self.out = nnx.Linear(2, 16, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)

  def __call__(self, x):
    """Logits."""
    return self.out(nnx.tanh(self.hidden(x)))


def loss_fn(model, x, y):
  """The mean over a mini-batch."""
  return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


def main():
  """Trains, and returns the loss of worker 0's model on the data of all workers."""
  rng = np.random.default_rng(0)
  centres = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], np.float32)
  x = centres[:, None] + 0.4 * rng.normal(size=(WORKERS, 256, 2)).astype(np.float32)
  y = np.tile(np.arange(WORKERS, dtype=np.int32)[:, None], (1, 256))

  # was: tx = optax.sgd(0.1, momentum=0.9)
  tx = vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.sgd(0.1, momentum=0.9), axis_name='batch'), period=20)
  model = Classifier(nnx.Rngs(0))
  graph, state = nnx.split((model, nnx.Optimizer(model, tx, wrt=nnx.Param)))
  state = jax.tree.map(lambda leaf: jnp.stack([leaf] * WORKERS), state)

  def train_step(state, x, y):
    model, optimizer = nnx.merge(graph, state)
    grads = nnx.grad(loss_fn)(model, x, y)
    # was: grads = jax.lax.pmean(grads, 'batch')
    optimizer.update(model, grads)
    return nnx.state((model, optimizer))

  step = jax.pmap(train_step, axis_name='batch')
  for _ in range(STEPS):
    batch = rng.integers(0, 256, 32)
    state = step(state, x[:, batch], y[:, batch])

  model, _ = nnx.merge(graph, jax.tree.map(lambda leaf: leaf[0], state))
  return float(loss_fn(model, x.reshape(-1, 2), y.ravel()))


if __name__ == '__main__':
  print(f'loss {main():.4f}')
