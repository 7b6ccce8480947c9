"""One program at a time on XLA's CPU backend."""

from collections.abc import Callable
from typing import Any

import jax


class SerialDispatcher:
  """Calls each program after the previous one has finished.

  On XLA's CPU backend each device's part of a program holds a thread while it waits for the other devices in a
  collective. With several programs in flight, their parts can take all threads and wait for parts that get none. With
  one program at a time, one thread per device suffices, and more threads than cores only slow the others down (see
  `vrl_jax.cpu.thread_pool`). The host still prepares the next program's arguments while a program runs.

  Each placement has a dispatcher, so two placements can have a program each in flight. Such programs do not depend on
  each other: a program reads only results of its own placement. tests/cpu/test_thread_pool.py runs three engines on
  placements of the same two devices, with two threads and without waiting. The one that computes the initial weights
  (`vrl_jax.training.initial_weights`) has a single device, whose part waits for no other.

  >>> dispatch = SerialDispatcher()
  >>> dispatch(jax.jit(lambda x: 2 * x), 3.0).item()
  6.0
  """

  def __init__(self) -> None:
    self._last: jax.Array | None = None

  def __call__(self, program: Callable[..., Any], *args: Any) -> Any:
    """Returns `program(*args)`, called when the result of the previous call is ready."""
    last, self._last = self._last, None
    if last is not None and not last.is_deleted():
      last.block_until_ready()
    out = program(*args)
    # Any result will do, as all become ready together; the smallest, because it stays in memory.
    self._last = min(jax.tree.leaves(out), key=lambda x: x.nbytes, default=None)
    return out
