"""Whether an inner optimizer is linear in the gradient, which VRL-SGD's Δ needs."""

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.base import Params, State

_NOISE_ADVICE = (
  'Put noise before Δ, on the raw gradient: precede(optax.add_noise(0.01, 0.5, key), vrl_sgd(optax.sgd(0.1))); '
  'assume_linear=True skips this check'
)
_ADVICE = (
  'Put clipping before Δ, on the raw gradient: precede(optax.clip_by_global_norm(1.0), vrl_sgd(optax.sgd(0.1))); give '
  'Adam and its like to vrl_adaptive(optax.adam(0.001)). Linear ones are sgd, momentum, Nesterov, schedules, weight '
  'decay and their masks; assume_linear=True skips this check'
)


def require_linear(inner: optax.GradientTransformation, params: Params, state: State) -> None:
  """Raises ValueError unless the inner optimizer's step is linear (affine, with weight decay) in the gradient.

  JAX itself decides: only a linear function can be transposed. A numerical test would miss clipping, which is linear
  for small gradients.

  Args:
    inner: the inner optimizer.
    params: parameters of any size, as zeros.
    state: `inner.init(params)`.

  >>> x = jnp.zeros(2)
  >>> sgd, clipped = optax.sgd(0.1, momentum=0.9), optax.chain(optax.clip(1.0), optax.sgd(0.1))
  >>> require_linear(sgd, x, sgd.init(x))
  >>> try:
  ...   require_linear(clipped, x, clipped.init(x))
  ... except ValueError as error:
  ...   print(str(error)[:64])
  the inner optimizer cannot stand behind Δ: it is not linear. Put
  """

  def step(grads):
    updates, new = inner.update(grads, state, params)
    # The new state too: a preconditioner may wait in it for the next step, as in ACProp.
    return updates, [x for x in jax.tree.leaves(new) if jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)]

  refusal = 'the inner optimizer cannot stand behind Δ: '
  try:
    outputs = jax.eval_shape(step, params)
  except TypeError as error:  # a transform that demands extra arguments, which nobody has before the first step
    raise ValueError(f'{refusal}its linearity cannot be checked ({error}). {_ADVICE}') from error
  try:
    jax.eval_shape(lambda grads, outputs: jax.linear_transpose(step, grads)(outputs), params, outputs)
  except Exception as error:  # JAX has no one type for "cannot be transposed"
    raise ValueError(f'{refusal}it is not linear. {_ADVICE}') from error
  if _moves_by_itself(inner, params):
    raise ValueError(f'{refusal}it moves the model without a gradient, as added noise does. {_NOISE_ADVICE}')


def _moves_by_itself(inner, params):
  """Whether a gradient of zero moves parameters of zero: JAX transposes what has a constant beside its linear part."""
  try:
    with jax.ensure_compile_time_eval():  # also where the caller is traced
      zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params)
      updates, _ = inner.update(zeros, inner.init(zeros), zeros)
      return any(bool(jnp.any(u != 0)) for u in jax.tree.leaves(updates))
  except jax.errors.ConcretizationTypeError:  # a hyperparameter is traced itself, and its value not known yet
    return False
