"""What the tests of VRL-SGD's relatives share: the problem, the rate, and a run by hand under vmap."""

import jax
import numpy as np
import numpy_reference as reference
import optax
import quadratics

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
LENGTHS = [1, 4, 4, 4, 2]


def rate(t):
  return 0.03 / (1 + 0.1 * float(t))


def falling_sgd():
  """SGD with the learning rate `rate`."""
  return optax.sgd(lambda count: 0.03 / (1 + 0.1 * count.astype(float)))


def by_hand(algorithm, lengths=LENGTHS, problem=PROBLEM):
  """[T, N, 7] models, [T, N, 7] consensus models, and the last state."""
  return quadratics.run_by_hand(quadratics.by_hand(algorithm), algorithm, problem, lengths, X0)


def run_rounds(algorithm, gradients, rounds, params):
  """Rounds of constant gradients [rounds][steps, N] on a model of one number: [rounds, N] models, and the state."""
  state = jax.vmap(algorithm.init)(params)
  update = jax.vmap(algorithm.update, axis_name='w')
  communicate = jax.vmap(algorithm.communicate, axis_name='w')
  models = []
  for _ in range(rounds):
    for gradient in gradients:
      updates, state = update(gradient, state, params)
      params = params + updates
    params, state = communicate(params, state)
    models.append(np.asarray(params))
  return np.stack(models), state
