import flax.linen as nn
import numpy as np
import optax

import vrl_jax


class MLP(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(4)(nn.relu(nn.Dense(16)(x)))


rng = np.random.default_rng(0)
y = rng.integers(0, 4, size=640)
x = (np.eye(4)[y] + 0.3 * rng.normal(size=(640, 4))).astype(np.float32)
algorithms = {'Local SGD': vrl_jax.local_sgd(optax.sgd(0.2)), 'VRL-SGD': vrl_jax.vrl_sgd(optax.sgd(0.2))}
split = {'partition': 'dirichlet', 'dirichlet_alpha': 0.1}
results = vrl_jax.fit(
  MLP(), (x, y), algorithm=algorithms, period=5, batch_size=8, epochs=4, workdir='runs/fit', **split
)
results['VRL-SGD'].export('model.npz')
print(results.report())
