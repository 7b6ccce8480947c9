"""Transforms of the raw gradient, applied before an algorithm."""

import dataclasses
from collections.abc import Callable

import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State


def precede(transform: optax.GradientTransformation, algorithm: Algorithm) -> Algorithm:
  """Applies an optax transform to each worker's raw gradient, before the algorithm.

  Use it for transforms that are not linear in the gradient (clipping, signs) and therefore cannot follow VRL-SGD's Δ,
  and for weight decay that is part of the loss.

  Args:
    transform: any gradient transformation; it has a separate state on each worker.
    algorithm: the algorithm that gets the transformed gradient.

  Returns:
    The composed Algorithm.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.precede(optax.clip_by_global_norm(1.0), vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name='w'))
  >>> params = {'x': jnp.zeros((2, 3))}  # two workers
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> updates, state = jax.vmap(algorithm.transform.update)({'x': jnp.full((2, 3), 100.0)}, state, params)
  >>> [round(float(norm), 4) for norm in jnp.linalg.norm(updates['x'], axis=1)]
  [0.1, 0.1]
  """
  first = optax.with_extra_args_support(transform)

  def init(params):
    return first.init(params), algorithm.transform.init(params)

  def update(grads, state, params=None, **extra_args):
    first_state, state = state
    grads, first_state = first.update(grads, first_state, params, **extra_args)
    updates, state = algorithm.transform.update(grads, state, params, **extra_args)
    return updates, (first_state, state)

  def plan(period):
    return tuple((step, _Communicate(communicate)) for step, communicate in algorithm.communications(period))

  return algorithm._replace(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=_Communicate(algorithm.communicate),
    plan=plan if algorithm.plan else None,
    exchange=None,
    consensus=lambda params, state: algorithm.consensus(params, state[1]),
    correction=lambda state: algorithm.correction(state[1]),
  )


@dataclasses.dataclass(frozen=True)
class _Communicate:
  """A communication that leaves the state of the preceding transform as it is; equal for equal communications."""

  algorithm: Callable[[Params, State], tuple[Params, State]]

  def __call__(self, params: Params, state: State) -> tuple[Params, State]:
    first_state, state = state
    params, state = self.algorithm(params, state)
    return params, (first_state, state)
