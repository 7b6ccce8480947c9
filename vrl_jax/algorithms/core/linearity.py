"""The check that an inner optimizer is linear in the gradient, as VRL-SGD's Δ requires."""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AbstractMesh, use_abstract_mesh

from vrl_jax.algorithms.core.algorithm import Params, State

_NOISE_ADVICE = (
  'Add noise to the raw gradient: precede(optax.add_noise(0.01, 0.5, key), vrl_sgd(optax.sgd(0.1))); '
  'assume_linear=True skips this check'
)
_ADVICE = (
  'Clip the raw gradient: precede(optax.clip_by_global_norm(1.0), vrl_sgd(optax.sgd(0.1))); for Adam and similar '
  'optimizers use vrl_adaptive(optax.adam(0.001)), in a config --config.algorithm=vrl_adaptive. sgd, momentum, Nesterov, schedules, weight decay and masks of them '
  'are linear; assume_linear=True skips this check'
)


def require_linear(inner: optax.GradientTransformation, params: Params, state: State) -> None:
  """Raises ValueError unless the inner optimizer's step is linear (affine, with weight decay) in the gradient.

  Decided by `jax.linear_transpose`: only a linear function can be transposed. A numerical test would miss clipping,
  which is linear for small gradients.

  Args:
    inner: the inner optimizer.
    params: zeros, of any shape.
    state: `inner.init(params)`.

  >>> x = jnp.zeros(2)
  >>> sgd, clipped = optax.sgd(0.1, momentum=0.9), optax.chain(optax.clip(1.0), optax.sgd(0.1))
  >>> require_linear(sgd, x, sgd.init(x))
  >>> try:
  ...   require_linear(clipped, x, clipped.init(x))
  ... except ValueError as error:
  ...   print(str(error).split(',')[0])
  the inner optimizer is not linear in the gradient
  """

  def step(grads):
    updates, new = inner.update(grads, state, params)
    # The new state too: ACProp stores its preconditioner there for the next step.
    return updates, [x for x in jax.tree.leaves(new) if jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)]

  try:
    outputs = jax.eval_shape(step, params)
  except TypeError as error:  # a transform with required extra arguments, which are not available before the first step
    raise ValueError(
      f'the inner optimizer must be linear in the gradient, which cannot be checked ({error}). {_ADVICE}'
    ) from error
  try:
    jax.eval_shape(lambda grads, outputs: jax.linear_transpose(step, grads)(outputs), params, outputs)
  except Exception as error:  # JAX has no single exception type for "cannot be transposed"
    raise ValueError(f'the inner optimizer is not linear in the gradient, as Δ requires. {_ADVICE}') from error
  if _has_offset(inner, params):
    raise ValueError(
      'the inner optimizer is not linear in the gradient, as Δ requires: it updates the model even if the gradient is '
      f'zero, as added noise does. {_NOISE_ADVICE}'
    )


def _has_offset(inner, params):
  """Whether a zero gradient moves zero parameters; `jax.linear_transpose` accepts a constant term."""
  try:
    # In case the caller is being traced, perhaps over a mesh, over which these zeros are not sharded.
    with jax.ensure_compile_time_eval(), use_abstract_mesh(AbstractMesh((), ())):
      zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params)
      updates, _ = inner.update(zeros, inner.init(zeros), zeros)
      return any(bool(jnp.any(u != 0)) for u in jax.tree.leaves(updates))
  except jax.errors.ConcretizationTypeError:  # a hyperparameter is traced, so its value is not known yet
    return False
