"""Whether an inner optimizer is linear in the gradient, which VRL-SGD's Δ needs."""

import jax
import optax

from vrl_jax.algorithms.base import Params, State

_ADVICE = (
  'Put a preconditioner or clipping before Δ, on the raw gradient: '
  'precede(optax.clip_by_global_norm(1.0), vrl_sgd(optax.sgd(0.1))). Linear ones are sgd, momentum, Nesterov, '
  'schedules, weight decay and their masks; assume_linear=True skips this check'
)


def require_linear(inner: optax.GradientTransformation, params: Params, state: State) -> None:
  """Raises ValueError unless the inner optimizer's update is linear (affine, with weight decay) in the gradient.

  JAX itself decides: only a linear function can be transposed. A numerical test would miss clipping, which is linear
  for small gradients.

  Args:
    inner: the inner optimizer.
    params: parameters of any size, as zeros.
    state: `inner.init(params)`.
  """

  def transpose(grads):
    return jax.linear_transpose(lambda g: inner.update(g, state, params)[0], grads)(grads)

  try:
    jax.eval_shape(transpose, params)
  except Exception as error:  # JAX has no one type for "cannot be transposed"
    # A TypeError comes from a transform that demands extra arguments, which nobody has before the first step.
    why = f'its linearity cannot be checked ({error})' if isinstance(error, TypeError) else 'it is not linear'
    raise ValueError(f'the inner optimizer of vrl_sgd cannot stand behind Δ: {why}. {_ADVICE}') from error
