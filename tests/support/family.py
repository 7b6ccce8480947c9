"""The problem, learning rate and runs that the tests of VRL-SGD's relatives share."""

import jax
import numpy as np
import optax
from support import numpy_reference as reference
from support import quadratics

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
LENGTHS = [1, 4, 4, 4, 2]


def rate(t):
  return 0.03 / (1 + 0.1 * float(t))


def falling_sgd():
  """SGD with the learning rate `rate`."""
  return optax.sgd(lambda count: 0.03 / (1 + 0.1 * count.astype(float)))


def run(algorithm, lengths=LENGTHS, problem=PROBLEM):
  """[T, N, 7] models, [T, N, 7] consensus models, and the last state."""
  return quadratics.run_vmapped(algorithm, problem, lengths, X0)


def run_rounds(algorithm, gradients, rounds, params):
  """Rounds of constant gradients [rounds][steps, N] on a model of one number: [rounds, N] models, and the state."""
  state = jax.vmap(algorithm.transform.init)(params)
  update = jax.vmap(algorithm.transform.update, axis_name='w')
  communicate = jax.vmap(algorithm.communicate, axis_name='w')
  models = []
  for _ in range(rounds):
    for gradient in gradients:
      updates, state = update(gradient, state, params)
      params = params + updates
    params, state = communicate(params, state)
    models.append(np.asarray(params))
  return np.stack(models), state
