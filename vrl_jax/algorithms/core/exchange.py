"""The parts of an algorithm's communication, which `streaming`, `overlapped` and `quantised` put together differently."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State
from vrl_jax.algorithms.core.axes import AxisName
from vrl_jax.algorithms.core.fragments import Pieces
from vrl_jax.algorithms.core.precision import wide_zeros
from vrl_jax.algorithms.core.probe import divide_by_response
from vrl_jax.algorithms.core.quantisation import Quantiser


class Window(NamedTuple):
  """One fragment on one worker over a window: the local steps between the starts of two of its communications.

  Attributes:
    start: the worker's model at the end of the window.
    moved: `start` minus the last common model.
    response: R, how far a constant gradient of 1 would have moved the model, one number per leaf.
    own: U_i, how far the correction has moved the model.
    gradient: the mean of the gradients.

  >>> window = Window(start=[3.0], moved=[1.0], response=[2.0], own=[4.0], gradient=[])
  >>> (window.own[0] - window.moved[0]) / window.response[0]  # the mean gradient: moved is U minus R times it
  1.5
  """

  start: Pieces
  moved: Pieces
  response: Pieces
  own: Pieces
  gradient: Pieces


class Correction(NamedTuple):
  """The Δ of an algorithm. Its state is a tuple of trees like the parameters.

  Attributes:
    init: `(params) -> state`.
    value: `(state) -> Δ`.
    vectors: `(pieces of the state, window) -> [pieces]`, sent besides the models.
    receive: `(pieces of the state, window, sent, means) -> pieces of the state`; `sent` and `means` are the
      contributions of this worker and their means over the workers: of the models, then of `vectors`.
    uses_response: whether it reads `response` and `own`.
    uses_gradient: whether it reads `gradient`.

  >>> delta = from_models()
  >>> window = Window(start=[0.0], moved=[-4.0], response=[jnp.array(2.0)], own=[jnp.array(6.0)], gradient=[])
  >>> delta.receive(([0.0],), window, [[-4.0]], [[-1.0]])  # (-1 + 4 + 6)/2
  ([Array(4.5, dtype=float32, weak_type=True)],)
  """

  init: Callable[[Params], tuple[Params, ...]]
  value: Callable[[tuple[Params, ...]], Params]
  vectors: Callable[[tuple[Pieces, ...], Window], list[Pieces]]
  receive: Callable[[tuple[Pieces, ...], Window, list[Pieces], list[Pieces]], tuple[Pieces, ...]]
  uses_response: bool = False
  uses_gradient: bool = False


def from_models() -> Correction:
  """VRL-SGD's Δ, computed from the models alone: Δ_i ← (mean q − q_i + U_i)/R.

  >>> from_models().value(from_models().init(jnp.ones(2))).tolist()
  [0.0, 0.0]
  """

  def receive(state, window, sent, means):
    def new(delta, q, mean, own, response):
      return jnp.where(response != 0, divide_by_response(mean - q + own, response), delta)

    return (jax.tree.map(new, state[0], sent[0], means[0], window.own, window.response),)

  return Correction(
    init=lambda params: (wide_zeros(params),),
    value=lambda state: state[0],
    vectors=lambda state, window: [],
    receive=receive,
    uses_response=True,
  )


def control_variates(target: Callable[[Pieces, Window], Pieces], **uses: bool) -> Correction:
  """Δ_i = c_i − c, with c_i ← c_i + what worker i sent of target − c_i, and c ← c + its mean.

  Differences are sent, so that what a quantiser loses of them is sent the next time, and vanishes with them.

  Args:
    target: `(pieces of c_i, window) -> pieces`, what c_i should become.
    **uses: `uses_response` or `uses_gradient`.

  >>> correction = control_variates(lambda own, window: window.gradient)
  >>> window = Window(start=[], moved=[], response=[], own=[], gradient=[5.0])
  >>> correction.vectors(([2.0], [1.0]), window)
  [[3.0]]
  >>> correction.receive(([2.0], [1.0]), window, [[], [3.0]], [[], [0.5]])
  ([5.0], [1.5])
  """
  add = lambda tree, step: jax.tree.map(lambda x, y: x + y, tree, step)
  return Correction(
    init=lambda params: (wide_zeros(params), wide_zeros(params)),
    value=lambda state: jax.tree.map(jnp.subtract, *state),
    vectors=lambda state, window: [jax.tree.map(lambda t, c: t - c, target(state[0], window), state[0])],
    receive=lambda state, window, sent, means: (add(state[0], sent[1]), add(state[1], means[1])),
    **uses,
  )


def mean_gradient_by_response(own: Pieces, window: Window) -> Pieces:
  """The `target` of SCAFFOLD, (U_i − moved)/R: the mean gradient of the window, computed from the models.

  >>> window = Window(start=[], moved=[jnp.array(1.0)], response=[jnp.array(2.0)], own=[jnp.array(4.0)], gradient=[])
  >>> mean_gradient_by_response([jnp.array(0.0)], window)
  [Array(1.5, dtype=float32, weak_type=True)]
  """

  def target(c, moved, response, u):
    return jnp.where(response != 0, divide_by_response(u - moved, response), c)

  return jax.tree.map(target, own, window.moved, window.response, window.own)


class Server(NamedTuple):
  """The step from one common model to the next, the same on all workers.

  Attributes:
    init: `(pieces of the model) -> state`.
    step: `(state, agreed pieces, mean q, response) -> (new agreed pieces, state)`.
    uses_response: whether it reads `response`.

  >>> averaging = Server(lambda agreed: (), lambda state, agreed, mean, response: ([agreed[0] + mean[0]], state))
  >>> averaging.step((), [1.0], [2.0], [])
  ([3.0], ())
  """

  init: Callable[[Pieces], State]
  step: Callable[[State, Pieces, Pieces, Pieces], tuple[Pieces, State]]
  uses_response: bool = False


class Exchange(NamedTuple):
  """The parts of an algorithm, and how they are sent; see `vrl_jax.algorithms.core.general_rule`.

  Attributes:
    inner: the inner optimizer.
    axis_name: the workers' axis.
    correction: Δ, or None.
    server: the step of the common model; None is the mean.
    corrected: which leaves have a Δ, see :func:`vrl_jax.vrl_sgd`.
    plain: the algorithm with the defaults of `fragments`, `delay` and `quantiser`.
    made: the algorithm that these parts make.
    fragments: the number of fragments in which the model is sent, at different times.
    delay: the number of local steps that overlap with a transfer.
    quantiser: the encoding of what is sent; None is none.

  >>> import vrl_jax
  >>> vrl_jax.local_sgd(optax.sgd(0.1)).exchange.fragments
  1
  """

  inner: optax.GradientTransformationExtraArgs
  axis_name: AxisName
  correction: Correction | None = None
  server: Server | None = None
  corrected: Any = True
  plain: Algorithm | None = None
  made: Algorithm | None = None
  fragments: int = 1
  delay: int = 0
  quantiser: Quantiser | None = None

  @property
  def is_plain(self) -> bool:
    """Whether the model is sent in one fragment, without a delay and without quantisation."""
    return self.fragments == 1 and self.delay == 0 and self.quantiser is None


def with_exchange(algorithm: Algorithm, exchange: Exchange) -> Algorithm:
  """The algorithm with a description of its parts.

  >>> import vrl_jax
  >>> local = vrl_jax.local_sgd(optax.sgd(0.1))
  >>> local.exchange.plain.communicate is local.communicate
  True
  """
  bare = algorithm._replace(exchange=None)
  return algorithm._replace(exchange=exchange._replace(plain=exchange.plain or bare, made=bare))


def exchange_of(algorithm: Algorithm, combinator: str) -> Exchange:
  """The parts of an algorithm; ValueError if it has none, or if one of its functions has been replaced.

  >>> import vrl_jax
  >>> try:
  ...   exchange_of(vrl_jax.easgd(optax.sgd(0.1)), 'streaming')
  ... except ValueError as error:
  ...   print(str(error).split(':')[0])
  streaming is not possible for this algorithm
  """
  exchange: Exchange | None = algorithm.exchange
  if exchange is None or exchange.made != algorithm._replace(exchange=None):
    raise ValueError(
      f'{combinator} is not possible for this algorithm: only for local_sgd, vrl_sgd, slowmo and vrl_adaptive with '
      "buffers='keep', scaffold with participation=1, diloco, and with_outer_optimizer around them; "
      'precede(transform, ...) must come after it'
    )
  return exchange


def leaf_mask(mask: Any, params: Params) -> Any:
  """A tree of bools like `params` from `corrected`: True, a prefix of the tree, or a function of the parameters.

  >>> leaf_mask({'a': True, 'b': False}, {'a': jnp.zeros(1), 'b': [jnp.zeros(1)]})
  {'a': True, 'b': [False]}
  """
  mask = mask(params) if callable(mask) else mask
  return jax.tree.map(lambda m, part: jax.tree.map(lambda _: bool(m), part), mask, params)
