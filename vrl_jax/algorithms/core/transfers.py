"""When the fragments of a model are sent, and the parts of a transfer that takes some local steps."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from vrl_jax.algorithms.core.algorithm import Params, Plan, State


@dataclasses.dataclass(frozen=True)
class OfFragment:
  """A function of a fragment; equal for equal functions and fragments, so that `as_optax` has one branch for them.

  >>> OfFragment(lambda fragment, x: (fragment, x), fragment=2)('x')
  (2, 'x')
  """

  function: Callable[..., Any]
  fragment: int

  def __call__(self, *args: Any) -> Any:
    """The function of the fragment and `args`."""
    return self.function(self.fragment, *args)


@dataclasses.dataclass(frozen=True)
class Arrival:
  """The end of a transfer in three parts, of which only the second communicates.

  Attributes:
    outgoing: `(state) -> vectors`, what this worker sends; the same at any time between the start and the end.
    exchange: `(vectors) -> exchanged`, the collective.
    incoming: `(params, state, exchanged) -> (params, state)`.

  >>> import jax, jax.numpy as jnp
  >>> outgoing, incoming = lambda state: state, lambda params, state, mean: (params + mean, state)
  >>> arrival = Arrival(outgoing, exchange=lambda x: jax.lax.pmean(x, 'w'), incoming=incoming)
  >>> params, _ = jax.vmap(arrival, axis_name='w')(jnp.zeros(2), jnp.array([1.0, 3.0]))
  >>> params.tolist()
  [2.0, 2.0]
  """

  outgoing: Callable[[State], Any]
  exchange: Callable[[Any], Any]
  incoming: Callable[[Params, State, Any], tuple[Params, State]]

  def __call__(self, params: Params, state: State) -> tuple[Params, State]:
    """All three parts."""
    return self.incoming(params, state, self.exchange(self.outgoing(state)))


@dataclasses.dataclass(frozen=True)
class Moment:
  """What happens after one local step.

  >>> Moment((lambda params, state: (params + 1, state), lambda params, state: (2 * params, state)))(1, ())
  (4, ())
  """

  events: tuple[Callable[[Params, State], tuple[Params, State]], ...]

  def __call__(self, params: Params, state: State, exchanged: Any = None) -> tuple[Params, State]:
    """All events, one after the other; `exchanged` is what the `arrival` has exchanged, if it is known already."""
    first, *others = self.events
    if exchanged is None:
      params, state = first(params, state)
    else:
      assert self.arrival is not None
      params, state = self.arrival.incoming(params, state, exchanged)
    for event in others:
      params, state = event(params, state)
    return params, state

  @property
  def arrival(self) -> Arrival | None:
    """The transfer that was already under way and ends here."""
    first = self.events[0]
    return first if isinstance(first, Arrival) else None


class Events(NamedTuple):
  """What happens to a fragment.

  Attributes:
    together: `(fragment, params, state) -> (params, state)`, a transfer without a delay.
    start: the same, the start of a transfer.
    end: `(fragment) -> Arrival`, its end.

  >>> Events(together=None, start=None, end=None)._fields
  ('together', 'start', 'end')
  """

  together: Callable[..., Any]
  start: Callable[..., Any]
  end: Callable[[int], Arrival]


def start_steps(period: int, fragments: int) -> list[int]:
  """The steps of a period after which the fragments are sent: evenly spread, the last one at its end.

  >>> start_steps(20, fragments=4), start_steps(5, fragments=2)
  ([5, 10, 15, 20], [3, 5])
  """
  return [-(-period * (f + 1) // fragments) for f in range(fragments)]


def plan(period: int, fragments: int, delay: int, events: Events) -> Plan:
  """What to call after which step of a period, see `Algorithm.plan`.

  Fragment f starts after ⌈(f + 1)·period/F⌉ steps, and ends `delay` steps later, or when the next one starts. So one
  transfer is under way at a time, and only the last fragment's at the end of a period, whatever its length.

  >>> [step for step, _ in plan(20, fragments=4, delay=0, events=Events(None, None, None))]
  [5, 10, 15, 20]
  >>> steps = plan(20, fragments=2, delay=3, events=Events(None, None, end=lambda fragment: Arrival(None, None, None)))
  >>> [(step, moment.arrival is not None) for step, moment in steps]
  [(3, True), (10, False), (13, True), (20, False)]
  """
  starts = start_steps(period, fragments)
  found: list[tuple[int, Callable[..., Any]]]
  if not delay:
    found = [(step, OfFragment(events.together, f)) for f, step in enumerate(starts)]
  else:
    found = [(min(delay, starts[0]), events.end(fragments - 1))]
    for f in range(fragments - 1):
      found += [(starts[f], OfFragment(events.start, f)), (min(starts[f] + delay, starts[f + 1]), events.end(f))]
    found += [(period, OfFragment(events.start, fragments - 1))]
  steps = dict.fromkeys(step for step, _ in found)
  return tuple((step, Moment(tuple(event for at, event in found if at == step))) for step in steps)
