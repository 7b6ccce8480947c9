"""SIGTERM and SIGINT: the handler records the first signal, and the run asks for it at points where it can stop."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from vrl_jax.errors import Interrupted

RERUN = 'rerun the same command to resume from the last checkpoint'
_PATIENCE_SECONDS = 3.0  # between a signal and the next point at which a run can stop, while it starts


class StopRequest:
  """The first SIGTERM or SIGINT that the process received.

  The handler only records it: Python runs handlers anywhere, and JAX and Python ignore exceptions in some of their
  callbacks. `check` raises Interrupted where a run can stop.

  Attributes:
    signum: the first signal, or None.
    end: called with a line and an exit status where the process has to end although the run cannot stop.

  >>> request = StopRequest()
  >>> request.check()
  >>> with request.handles_signals():
  ...   signal.raise_signal(signal.SIGTERM)
  >>> try:
  ...   request.check()
  ... except Interrupted as error:
  ...   print(error)
  stopped by SIGTERM
  """

  def __init__(self) -> None:
    self.signum: int | None = None
    self.end: Callable[[str, int], object] = _print_and_exit
    self._forward: Callable[[int], object] | None = None
    self._interrupts = 0
    self._watched = False
    self._deferred = False
    self._raised = False

  def check(self) -> None:
    """Raises Interrupted if a signal was received."""
    if self.signum is not None:
      self._raised = True
      raise Interrupted(f'stopped by {signal.Signals(self.signum).name}', self.signum)

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Inside, the run decides when it stops, however long that takes; at the end, `check`."""
    self._deferred = True
    try:
      yield
    finally:
      self._raised, self._deferred = self.signum is not None, False
    self.check()

  @contextlib.contextmanager
  def forwarded(self, send: Callable[[int], object]) -> Iterator[None]:
    """Inside, signals are passed to another process, also the one already received.

    Args:
      send: called with the number of each signal.

    >>> request, sent = StopRequest(), []
    >>> with request.handles_signals(), request.forwarded(sent.append):
    ...   signal.raise_signal(signal.SIGTERM)
    >>> sent
    [15]
    """
    self._forward = send
    if self.signum is not None:
      send(self.signum)
    try:
      yield
    finally:
      self._forward = None

  @contextlib.contextmanager
  def handles_signals(self) -> Iterator[None]:
    """Inside, SIGTERM and SIGINT are recorded here; a second SIGINT raises KeyboardInterrupt.

    Only the main thread can handle signals; in another thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
      yield
      return
    before = {signum: signal.signal(signum, self._handle) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
      yield
    finally:
      for signum, handler in before.items():
        signal.signal(signum, handler)

  @contextlib.contextmanager
  def watched(self) -> Iterator[None]:
    """Inside, the process ends (see `end`) at a second SIGINT, and if the run does not stop soon while it starts.

    Python runs signal handlers only between bytecodes of the main thread, so that a long compilation or round delays
    them. The wake-up descriptor is written to at once, and a thread reads it.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    thread = threading.Thread(target=self._watch, args=(readable,), daemon=True, name='watch for signals')
    thread.start()
    self._watched = True
    before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
      yield
    finally:
      signal.set_wakeup_fd(before)
      self._watched = False
      os.close(writable)
      thread.join()
      os.close(readable)

  def _handle(self, signum, frame):
    del frame
    if self.signum is None:
      self.signum = signum
    self._interrupts += signum == signal.SIGINT
    if self._forward is not None:
      self._forward(signum)
    elif self._interrupts == 2 and not self._watched:
      raise KeyboardInterrupt

  def _watch(self, readable):
    first, received, interrupts = None, 0.0, 0
    while True:
      if select.select([readable], [], [], None if first is None else 0.1)[0]:
        byte = os.read(readable, 1)
        if not byte:
          return
        if byte[0] not in (signal.SIGTERM, signal.SIGINT):
          continue
        if first is None:
          first, received = signal.Signals(byte[0]), time.monotonic()
        interrupts += byte[0] == signal.SIGINT
      if first is None or self._forward is not None:
        continue
      if interrupts == 2:
        self.end(f'stopped without a new checkpoint; {RERUN}', 128 + signal.SIGINT)
      if self._deferred or self._raised:
        received = time.monotonic()
      elif time.monotonic() - received > _PATIENCE_SECONDS:
        self.end(f'stopped by {first.name}; {RERUN}', 128 + first)


def _print_and_exit(line, status):
  print(line, file=sys.stderr, flush=True)
  os._exit(status)


@contextlib.contextmanager
def watched_stop_requests() -> Iterator[StopRequest]:
  """Yields the signals of a process that belongs to the run, such as launch.py: they are handled and watched.

  >>> try:
  ...   with watched_stop_requests() as stop, stop.deferred():
  ...     signal.raise_signal(signal.SIGTERM)
  ...     print(f'signal {stop.signum} received; the round is finished first')
  ... except Interrupted as error:
  ...   print(error)
  signal 15 received; the round is finished first
  stopped by SIGTERM
  """
  request = StopRequest()
  with request.watched(), request.handles_signals():
    yield request
