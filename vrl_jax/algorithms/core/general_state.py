"""The state of an algorithm under the general rule of communication."""

from typing import NamedTuple

import jax

from vrl_jax.algorithms.core.algorithm import Params, State


class OpenWindow(NamedTuple):
  """The open window of each fragment: sums over the local steps since it was last sent.

  Fields that the algorithm does not need are ().

  Attributes:
    response: how far the probe has moved, one number per fragment and leaf.
    since: the same, since the last change of Δ.
    own: how far Δ has moved the model; if the inner optimizer has no memory, before the last change of Δ.
    gradients: the sum of the gradients.
    count: int32, the number of local steps, one per fragment.

  >>> import jax.numpy as jnp
  >>> OpenWindow(response=(), since=(), own=(), gradients=(), count=jnp.zeros(4, jnp.int32)).count.tolist()
  [0, 0, 0, 0]
  """

  response: Params
  since: Params
  own: Params
  gradients: Params
  count: jax.Array  # type: ignore[assignment]  # hides tuple.count, as in optax's states


class GeneralState(NamedTuple):
  """State of an algorithm under :func:`vrl_jax.streaming`, :func:`vrl_jax.overlapped` or :func:`vrl_jax.quantised`.

  Attributes:
    inner: the inner optimizer's state, per worker.
    correction: the trees that make Δ_i, per worker; () without Δ.
    agreed: ref, the last common model, the same on every worker.
    unsent: e_i, the quantisation error, per worker; () without error feedback.
    server: the state of the outer optimizer, for each fragment; the same on every worker.
    window: per worker.
    transfer: the `Transfers` in progress; () without a delay.
    probe: the state of the inner optimizer that gets the constant gradient 1; the same on every worker.
    shadow: the state of the inner optimizer that gets Δ, per worker; () if it has no memory.

  >>> import jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.streaming(vrl_jax.local_sgd(optax.sgd(0.1)), fragments=2)
  >>> algorithm.transform.init(jnp.ones(2)).agreed.tolist()
  [1.0, 1.0]
  """

  inner: State
  correction: tuple[Params, ...]
  agreed: Params
  unsent: Params
  server: State
  window: OpenWindow
  transfer: State
  probe: State
  shadow: State


class Transfers(NamedTuple):
  """The transfers in progress: the last window of each fragment, see `vrl_jax.algorithms.core.exchange.Window`.

  Attributes:
    start: the worker's model when the transfer started, per worker.
    response: R, one number per fragment and leaf.
    own: U_i, per worker.
    gradient: the mean of the gradients, per worker.
    begun: int32, the number of transfers so far, one per fragment.

  >>> import jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.overlapped(vrl_jax.local_sgd(optax.sgd(0.1)), delay=2)
  >>> algorithm.transform.init(jnp.ones(2)).transfer.start.tolist()
  [1.0, 1.0]
  """

  start: Params
  response: Params
  own: Params
  gradient: Params
  begun: jax.Array
