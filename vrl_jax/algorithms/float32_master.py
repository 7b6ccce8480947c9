"""Float32 master parameters for a model with narrow parameters."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import NEEDS_PARAMS, Algorithm, Params, State
from vrl_jax.algorithms.core.precision import cast_like, copied, widened


class Float32MasterState(NamedTuple):
  """State of :func:`with_float32_master`.

  Attributes:
    algorithm: the wrapped algorithm's state.
    params: the parameters in float32 or wider.

  >>> import vrl_jax
  >>> state = with_float32_master(vrl_jax.local_sgd(optax.sgd(0.1))).transform.init(jnp.ones(1, jnp.bfloat16))
  >>> state.params
  Array([1.], dtype=float32)
  """

  algorithm: State
  params: Params


def with_float32_master(algorithm: Algorithm) -> Algorithm:
  """Keeps float32 master parameters in the state; the parameters of the loop are a rounded copy.

  A bfloat16 has 8 significant bits, so an update of less than 1/256 of a parameter is lost, and training stalls. Here
  the updates add up in float32, and the algorithm averages and corrects the float32 parameters: it sends as much as for
  a float32 model. With a `compute_dtype` in a config the parameters themselves are float32, and this is not needed.

  Args:
    algorithm: any Algorithm.

  Returns:
    The Algorithm for narrow parameters.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> def after(algorithm, steps=100):  # the gradient is 1, the learning rate 0.001
  ...   x = jnp.ones(1, jnp.bfloat16)
  ...   state = algorithm.transform.init(x)
  ...   for _ in range(steps):
  ...     updates, state = algorithm.transform.update(jnp.ones(1, jnp.bfloat16), state, x)
  ...     x = optax.apply_updates(x, updates)
  ...   return float(x[0])
  >>> sgd = vrl_jax.local_sgd(optax.sgd(0.001))
  >>> after(sgd), after(with_float32_master(sgd))
  (1.0, 0.8984375)
  """

  def init(params):
    return Float32MasterState(algorithm.transform.init(widened(params)), copied(widened(params)))

  def update(grads, state, params=None, **extra_args):
    if params is None:
      raise ValueError(NEEDS_PARAMS)
    updates, inner = algorithm.transform.update(widened(grads), state.algorithm, state.params, **extra_args)
    master = optax.apply_updates(state.params, updates)
    # The parameters may be an ulp off after the caller has added this, but the next update starts from the master.
    updates = jax.tree.map(jnp.subtract, master, widened(params))
    return cast_like(updates, params), Float32MasterState(inner, master)

  return algorithm._replace(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=_Communicate(algorithm.communicate),
    plan=(lambda period: tuple((step, _Communicate(do)) for step, do in algorithm.communications(period)))
    if algorithm.plan
    else None,
    exchange=None,
    consensus=lambda params, state: cast_like(algorithm.consensus(state.params, state.algorithm), params),
    correction=lambda state: algorithm.correction(state.algorithm),
  )


@dataclasses.dataclass(frozen=True)
class _Communicate:
  """A communication of the float32 parameters; equal for equal communications."""

  algorithm: Callable[[Params, State], tuple[Params, State]]

  def __call__(self, params: Params, state: State) -> tuple[Params, State]:
    master, inner = self.algorithm(state.params, state.algorithm)
    return cast_like(master, params), Float32MasterState(inner, master)
