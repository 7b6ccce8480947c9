"""Mixed precision: the loss in another dtype or matmul precision than the parameters."""

from typing import Any

import jax
import jax.numpy as jnp

from vrl_jax.tasks.task import Task


def with_precision(task: Task, compute_dtype: str | None = None, matmul_precision: str | None = None) -> Task:
  """Returns the task with its loss computed in another precision.

  The parameters are cast inside the loss, so the gradients, Δ, the optimizer's state and the parameters themselves, to
  which the updates add up, keep their dtype. The running statistics of batch normalisation keep theirs too.

  Args:
    task: any task.
    compute_dtype: the dtype, such as 'bfloat16', to which the loss casts the parameters and frozen variables. Tasks made by
      `classification_task` and `regression_task` cast their inputs likewise, and compute the loss of the outputs in
      float32; the loss of a `loss_task` must cast what it takes from the batch. None: no cast. Metrics do not cast.
    matmul_precision: 'default', 'high' or 'highest', for the products and convolutions of the loss and the metrics, as in
      `jax.default_matmul_precision`; None: JAX's default.

  >>> import flax.linen as nn, numpy as np
  >>> from vrl_jax.tasks.classification import classification_task
  >>> data = {'input': np.eye(2, dtype=np.float32), 'label': np.array([0, 1])}
  >>> task = with_precision(classification_task(nn.Dense(2), data), 'bfloat16')
  >>> rng = jax.random.key(0)
  >>> params = task.init(rng)
  >>> 'bf16[2,2] = dot_general' in str(jax.make_jaxpr(task.loss)(params, {}, data, rng))
  True
  >>> jax.tree.map(lambda x: x.dtype.name, jax.grad(task.loss)(params, {}, data, rng))
  {'bias': 'float32', 'kernel': 'float32'}
  """

  def loss(params, frozen, batch, rng):
    if compute_dtype is not None:
      params = _cast(params, compute_dtype)
      stats = {'batch_stats': frozen['batch_stats']} if task.batch_stats else None
      frozen = _cast(frozen, compute_dtype)
      frozen = {**frozen, **stats} if stats else frozen
    with jax.default_matmul_precision(matmul_precision):
      value = task.loss(params, frozen, batch, rng)
    return (widened(value[0]), value[1]) if task.batch_stats else widened(value)

  def metrics(params, frozen, batch):
    with jax.default_matmul_precision(matmul_precision):
      return task.metrics(params, frozen, batch)

  if compute_dtype is None and matmul_precision is None:
    return task
  return task._replace(loss=loss, metrics=metrics)


def compute_like(params: Any, inputs: Any) -> Any:
  """Floating-point inputs in the dtype of the parameters, if all of these have one that is narrower than float32.

  >>> compute_like({'w': jnp.ones(2, jnp.bfloat16)}, jnp.ones(3)).dtype.name
  'bfloat16'
  >>> compute_like({'w': jnp.ones(2)}, jnp.ones(3)).dtype.name
  'float32'
  """
  dtypes = {x.dtype for x in jax.tree.leaves(params)}
  return _cast(inputs, dtypes.pop()) if len(dtypes) == 1 and all(map(_is_narrow, dtypes)) else inputs


def widened(tree: Any) -> Any:
  """The tree with float32 for narrower floating-point leaves.

  >>> widened((jnp.ones(1, jnp.bfloat16), jnp.ones(1, jnp.int8)))
  (Array([1.], dtype=float32), Array([1], dtype=int8))
  """
  return jax.tree.map(lambda x: x.astype(jnp.float32) if _is_narrow(x.dtype) else x, tree)


def _is_narrow(dtype):
  return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32


def _cast(tree, dtype):
  return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)
