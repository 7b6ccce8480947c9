r"""The general rule of communication: fragments at different times, transfers that take some steps, few bits.

For a fragment of the model, ref is what all workers agreed on last. When its communication starts, after a window of local
steps, worker i sends :math:`q_i` of :math:`t_i = x_i - \mathrm{ref} + e_i`, where :math:`e_i` is what it has not sent so far:

.. math::

  \hat x = \mathrm{ref} + \frac{1}{N} \sum_j q_j, \qquad
  \Delta_i \leftarrow \frac{1}{R} \Big( \frac{1}{N} \sum_j q_j - q_i + U_i \Big), \qquad
  e_i \leftarrow t_i - q_i .

R is the response of the window (`vrl_jax.algorithms.core.probe`), and :math:`U_i` is how far Δ itself has moved the model in
it. Both are measured, because Δ may change inside a window. The rule is applied when the transfer ends, :math:`\tau` local
steps later: :math:`x_i \leftarrow \hat x + (x_i - x_i^s)` with :math:`x_i^s` the model when it started. Since
:math:`q_i` and not :math:`x_i` stands in the rule, :math:`\sum_i \Delta_i = 0` for every encoding.

U of an inner optimizer without memory is Δ times the response of the steps in which Δ had that value. One with memory
(momentum) also goes on responding to earlier values of Δ, so a second copy of it runs on Δ alone: it is linear.
"""

import functools

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core import fragments as pieces_of
from vrl_jax.algorithms.core.algorithm import Algorithm, no_correction
from vrl_jax.algorithms.core.automatic_axes import divisor, on_parts
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import worker_axes
from vrl_jax.algorithms.core.buffers import with_buffers_of
from vrl_jax.algorithms.core.evaluation import evaluated_mean
from vrl_jax.algorithms.core.exchange import Exchange, Window, leaf_mask, with_exchange
from vrl_jax.algorithms.core.general_state import GeneralState, OpenWindow, Transfers
from vrl_jax.algorithms.core.precision import cast_like, copied, subtract_correction, wide_zeros, widened
from vrl_jax.algorithms.core.probe import probe_leaves, probe_step
from vrl_jax.algorithms.core.quantisation import quantised_mean
from vrl_jax.algorithms.core.transfers import Arrival, Events, OfFragment, plan


def with_settings(algorithm: Algorithm, exchange: Exchange) -> Algorithm:
  """The algorithm that sends in the way of `exchange`; the plain algorithm if nothing of it is special.

  >>> import vrl_jax
  >>> local = vrl_jax.local_sgd(optax.sgd(0.1))
  >>> with_settings(local, local.exchange) == local
  True
  >>> with_settings(local, local.exchange._replace(fragments=2)).plan(4)[0][0]  # half of the model after two steps
  2
  """
  plain = exchange.plain or algorithm
  return with_exchange(plain, exchange) if exchange.is_plain else _Rule(exchange).algorithm()


class _Rule:
  """The functions of an algorithm under the general rule."""

  def __init__(self, exchange: Exchange):
    self.exchange = exchange
    self.correction, self.server = exchange.correction, exchange.server
    self.quantiser = exchange.quantiser
    self.feeds_back = exchange.quantiser is not None and exchange.quantiser.error_feedback
    self.uses_own = self.correction is not None and self.correction.uses_response
    self.uses_response = self.uses_own or (self.server is not None and self.server.uses_response)
    self.uses_gradient = self.correction is not None and self.correction.uses_gradient

  def algorithm(self) -> Algorithm:
    value = self.correction.value if self.correction else None
    plain = self.exchange.plain
    assert plain is not None
    made = Algorithm(
      transform=optax.GradientTransformationExtraArgs(self.init, self.update),
      communicate=self.plan(1)[0][1],
      consensus=lambda params, state: evaluated_mean(params, state.inner, self.exchange.axis_name),
      correction=(lambda state: value(state.correction)) if value else no_correction,
      participation=plain.participation,
      plan=self.plan,
    )
    return with_exchange(made, self.exchange)

  # The local step.

  def init(self, params):
    ex, plain = self.exchange, self.exchange.plain
    assert plain is not None
    plain.transform.init(params)  # its checks
    count, delayed = ex.fragments, ex.delay > 0
    numbers = lambda: jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), probe_leaves(params, 0))
    if_ = lambda condition, make: make() if condition else ()
    zeros, wide = lambda: wide_zeros(params), copied(widened(params))
    parts = self.parts(params)
    remembers = self.uses_own and _has_memory(ex.inner, params)
    return GeneralState(
      inner=ex.inner.init(params),
      correction=self.correction.init(params) if self.correction else (),
      agreed=wide,
      unsent=if_(self.feeds_back, zeros),
      server=tuple(self.server.init(pieces_of.take(wide, p)) for p in parts) if self.server else (),
      window=OpenWindow(
        response=if_(self.uses_response, numbers),
        since=if_(self.uses_own and not remembers, numbers),
        own=if_(self.uses_own and (remembers or delayed), zeros),
        gradients=if_(self.uses_gradient, zeros),
        count=jnp.zeros([count], jnp.int32),
      ),
      transfer=Transfers(
        start=copied(wide),
        response=if_(self.uses_response, numbers),
        own=if_(self.uses_own, zeros),
        gradient=if_(self.uses_gradient, zeros),
        begun=jnp.zeros([count], jnp.int32),
      )
      if delayed
      else (),
      probe=if_(self.uses_response, lambda: ex.inner.init(probe_leaves(params, 0))),
      shadow=if_(remembers, lambda: ex.inner.init(zeros())),
    )

  def parts(self, params):
    return pieces_of.bounds(params, self.exchange.fragments)

  def update(self, grads, state, params=None, **extra_args):
    inner, window = self.exchange.inner, state.window
    delta = self.correction.value(state.correction) if self.correction else None
    v = grads if delta is None else subtract_correction(grads, delta)
    updates, inner_state = inner.update(v, state.inner, params, **extra_args)
    window = window._replace(count=window.count + 1)
    probe, shadow = state.probe, state.shadow
    if self.uses_response:
      step, probe = probe_step(inner, state.inner, state.probe, grads, extra_args)
      if self.uses_own:  # a leaf without Δ has no response, so it gets none
        mask = leaf_mask(self.exchange.corrected, grads)
        step = jax.tree.map(lambda has_delta, s: s if has_delta else jnp.zeros_like(s), mask, step)
      add = lambda tree: jax.tree.map(lambda x, s: x + s[None], tree, step) if jax.tree.leaves(tree) else tree
      window = window._replace(response=add(window.response), since=add(window.since))
    if jax.tree.leaves(shadow):
      shadow = with_buffers_of(inner, shadow, state.inner)
      moved, shadow = inner.update(delta, shadow, wide_zeros(grads), **extra_args)
      window = window._replace(own=jax.tree.map(jnp.subtract, window.own, moved))
    if self.uses_gradient:
      gradients = jax.tree.map(lambda s, g: s + g.astype(s.dtype), window.gradients, grads)
      window = window._replace(gradients=gradients)
    return updates, state._replace(inner=inner_state, window=window, probe=probe, shadow=shadow)

  # The communication of a fragment.

  def close(self, f, params, state):
    """The window that ends now, and the state in which a new one has begun."""
    part, window = self.parts(params)[f], state.window
    take, number = lambda tree: pieces_of.take(tree, part), lambda tree: pieces_of.take_number(tree, f, part)
    clear = lambda tree: pieces_of.put(tree, part, jax.tree.map(jnp.zeros_like, take(tree)))
    clear_number = lambda tree: pieces_of.put_number(tree, f, jax.tree.map(jnp.zeros_like, number(tree)))
    start = take(widened(params))
    response, own, gradient = [], [], []
    if self.uses_response:
      response = number(window.response)
      window = window._replace(response=clear_number(window.response))
    if self.uses_own:
      own, window = self.own_so_far(f, part, state._replace(window=window))
      window = window._replace(own=clear(window.own) if jax.tree.leaves(window.own) else ())
    if self.uses_gradient:
      count = jnp.maximum(window.count[f], 1)
      gradient = jax.tree.map(lambda s: s / count.astype(s.dtype), take(window.gradients))
      window = window._replace(gradients=clear(window.gradients))
    window = window._replace(count=window.count.at[f].set(0))
    return (start, response, own, gradient), state._replace(window=window)

  def own_so_far(self, f, part, state):
    """U_i of the open window, with the steps since Δ changed, which are then counted."""
    window = state.window
    own = pieces_of.take(window.own, part) if jax.tree.leaves(window.own) else None
    if not jax.tree.leaves(window.since):
      return own, window
    assert self.correction is not None
    delta = pieces_of.take(self.correction.value(state.correction), part)
    since = pieces_of.take_number(window.since, f, part)
    recent = jax.tree.map(jnp.multiply, since, delta)
    own = recent if own is None else jax.tree.map(jnp.add, own, recent)
    since = pieces_of.put_number(window.since, f, jax.tree.map(jnp.zeros_like, since))
    return own, window._replace(since=since)

  def vectors(self, f, state, closed):
    """What a window has changed, and what this worker sends of it."""
    part = self.parts(state.agreed)[f]
    take = lambda tree: pieces_of.take(tree, part)
    start, response, own, gradient = closed
    moved = jax.tree.map(jnp.subtract, start, take(state.agreed))
    window = Window(start, moved, response, own, gradient)
    vectors = [jax.tree.map(jnp.add, moved, take(state.unsent)) if self.feeds_back else moved]
    if self.correction:
      vectors += self.correction.vectors(tuple(take(tree) for tree in state.correction), window)
    return window, vectors

  def apply(self, f, params, state, closed, exchanged, begun=None):
    """Receives what the workers have sent of their windows."""
    ex, part = self.exchange, self.parts(params)[f]
    take = lambda tree: pieces_of.take(tree, part)
    window, vectors = self.vectors(f, state, closed)
    start, response = window.start, window.response
    agreed, (sent, means) = take(state.agreed), exchanged
    if self.server:
      new, server = self.server.step(state.server[f], agreed, means[0], response)
      if begun is not None:  # in the first period no transfer is under way
        select = lambda new, old: jax.tree.map(functools.partial(jnp.where, begun > 0), new, old)
        new, server = select(new, agreed), select(server, state.server[f])
      state = state._replace(server=(*state.server[:f], server, *state.server[f + 1 :]))
    else:
      new = jax.tree.map(jnp.add, agreed, means[0])
    if self.feeds_back:
      unsent = jax.tree.map(jnp.subtract, vectors[0], sent[0])
      state = state._replace(unsent=pieces_of.put(state.unsent, part, unsent))
    if self.correction:
      if self.uses_own and ex.delay:  # the open window has the steps with the old Δ
        so_far, opened = self.own_so_far(f, part, state)
        state = state._replace(window=opened._replace(own=pieces_of.put(opened.own, part, so_far)))
      parts = tuple(take(tree) for tree in state.correction)
      received = self.correction.receive(parts, window, sent, means)
      trees = zip(state.correction, received, strict=True)
      state = state._replace(correction=tuple(pieces_of.put(tree, part, pieces) for tree, pieces in trees))
    if ex.delay:
      x = take(widened(params))
      new_x = jax.tree.map(lambda x, n, s: x + (n - s), x, new, start)
    else:
      new_x = new
    return pieces_of.put(params, part, new_x), state._replace(agreed=pieces_of.put(state.agreed, part, new))

  def mean(self, vectors):
    """What this worker contributes to the mean of each of the vectors, and the means."""
    if self.quantiser is None:
      names = worker_axes(self.exchange.axis_name)
      mean = lambda x: mean_over_workers(x, self.exchange.axis_name)
      of_parts, number = on_parts(mean, names, 0, 0), divisor(names)
      return vectors, jax.tree.map(lambda x: mean(x) if x.size % number else of_parts(x), vectors)
    pairs = [self.quantised(pieces, self.quantiser) for pieces in vectors]
    return [sent for sent, _ in pairs], [mean for _, mean in pairs]

  def quantised(self, pieces, quantiser):
    leaves, structure = jax.tree.flatten(pieces)
    flat = jnp.concatenate([x.astype(jnp.result_type(*leaves)) for x in leaves])
    ends = [sum(x.size for x in leaves[: i + 1]) for i in range(len(leaves))]
    split = lambda flat: cast_like(jax.tree.unflatten(structure, jnp.split(flat, ends[:-1])), pieces)
    sent, mean = quantised_mean(flat, quantiser, self.exchange.axis_name)
    return split(sent), split(mean)

  # When.

  def together(self, f, params, state):
    closed, state = self.close(f, params, state)
    _, vectors = self.vectors(f, state, closed)
    return self.apply(f, params, state, closed, self.mean(vectors))

  def start(self, f, params, state):
    part = self.parts(params)[f]
    (start, response, own, gradient), state = self.close(f, params, state)
    transfer = state.transfer
    put = lambda tree, pieces: pieces_of.put(tree, part, pieces) if pieces else tree
    transfer = Transfers(
      start=put(transfer.start, start),
      response=pieces_of.put_number(transfer.response, f, response) if response else (),
      own=put(transfer.own, own),
      gradient=put(transfer.gradient, gradient),
      begun=transfer.begun.at[f].add(1),
    )
    return params, state._replace(transfer=transfer)

  def end(self, f):
    return Arrival(OfFragment(self.outgoing, f), self.mean, OfFragment(self.incoming, f))

  def under_way(self, f, state):
    """The window whose end started the transfer."""
    part, transfer = self.parts(state.agreed)[f], state.transfer
    take = lambda tree: pieces_of.take(tree, part) if jax.tree.leaves(tree) else []
    response = pieces_of.take_number(transfer.response, f, part) if self.uses_response else []
    return take(transfer.start), response, take(transfer.own), take(transfer.gradient)

  def outgoing(self, f, state):
    return self.vectors(f, state, self.under_way(f, state))[1]

  def incoming(self, f, params, state, exchanged):
    return self.apply(f, params, state, self.under_way(f, state), exchanged, begun=state.transfer.begun[f])

  def plan(self, period):
    events = Events(self.together, self.start, self.end)
    return plan(period, self.exchange.fragments, self.exchange.delay, events)


def _has_memory(inner, params):
  """Whether the inner optimizer keeps anything like the parameters, such as momentum."""
  state = inner.init(probe_leaves(params, 0))
  is_buffer = optax.tree_utils.tree_map_params(inner, lambda _: True, state, transform_non_params=lambda _: False)
  return any(jax.tree.leaves(is_buffer))
