"""SIGTERM and SIGINT: a run stops immediately during start-up, and after the current round during training."""

import contextlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator

from vrl_jax.errors import Interrupted

_REPEAT_SECONDS = 2.0  # more than any clean-up takes


class StopRequest:
  """The first SIGTERM or SIGINT that the process received, and when it takes effect.

  Attributes:
    signum: the first signal, or None.

  >>> try:
  ...   with stop_requests() as request, request.deferred():
  ...     signal.raise_signal(signal.SIGTERM)
  ...     print(f'signal {request.signum} received; the round is finished first')
  ... except Interrupted as error:
  ...   print(error)
  signal 15 received; the round is finished first
  stopped by SIGTERM
  """

  def __init__(self, *, raise_at_second_interrupt: bool = True):
    self.signum: int | None = None
    self._raise_at_second_interrupt = raise_at_second_interrupt
    self._deferred = False

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Inside, the first signal only sets `signum`; at the end Interrupted is raised, unless the body has done so.

    A second SIGINT raises KeyboardInterrupt.
    """
    self._deferred = True
    raised = False
    try:
      yield
    except KeyboardInterrupt:
      raised = True
      raise
    finally:
      self._deferred = False
      if self.signum is not None and not raised:
        raise _interrupted(self.signum)

  def handle(self, signum: int, frame: object) -> None:
    """The handler of SIGTERM and SIGINT."""
    del frame
    second = self.signum is not None
    if self.signum is None:
      self.signum = signum
    if not self._deferred:
      self.repeat()
    if second and signum == signal.SIGINT and self._raise_at_second_interrupt:
      raise KeyboardInterrupt

  def repeat(self, *_: object) -> None:
    """Raises Interrupted, and again every two seconds: JAX prints and ignores exceptions inside its callbacks."""
    if self.signum is not None and not self._deferred:
      signal.setitimer(signal.ITIMER_REAL, _REPEAT_SECONDS)
      raise _interrupted(self.signum)


def _interrupted(signum):
  return Interrupted(f'stopped by {signal.Signals(signum).name}', signum)


@contextlib.contextmanager
def stop_requests(exit_message: str | None = None) -> Iterator[StopRequest]:
  """Inside, SIGTERM and SIGINT raise Interrupted, or do so later (see `StopRequest.deferred`).

  Only the main thread can handle signals; in another thread nothing changes.

  Args:
    exit_message: if given, a second SIGINT prints it and ends the process with status 130 at once, however busy JAX
      is. Otherwise it raises KeyboardInterrupt.

  >>> try:
  ...   with stop_requests():
  ...     signal.raise_signal(signal.SIGTERM)
  ... except Interrupted as error:
  ...   print(error, 'at once')
  stopped by SIGTERM at once
  """
  request = StopRequest(raise_at_second_interrupt=exit_message is None)
  if threading.current_thread() is not threading.main_thread():
    yield request
    return
  handlers: dict[signal.Signals, Callable[[int, types.FrameType | None], None]] = {
    signal.SIGTERM: request.handle,
    signal.SIGINT: request.handle,
    signal.SIGALRM: request.repeat,
  }
  with contextlib.nullcontext() if exit_message is None else _exit_at_second_interrupt(exit_message):
    before = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
    try:
      yield request
    finally:
      signal.setitimer(signal.ITIMER_REAL, 0)
      for signum, handler in before.items():
        signal.signal(signum, handler)


@contextlib.contextmanager
def _exit_at_second_interrupt(message):
  """Python runs signal handlers only between bytecodes of the main thread, so that a long compilation or round delays them.

  The wake-up descriptor is written to at once, and a thread reads it.
  """
  readable, writable = os.pipe()
  os.set_blocking(writable, False)

  def watch():
    interrupts = 0
    while byte := os.read(readable, 1):
      interrupts += byte[0] == signal.SIGINT
      if interrupts == 2:
        print(message, file=sys.stderr, flush=True)
        os._exit(128 + signal.SIGINT)

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
  try:
    yield
  finally:
    signal.set_wakeup_fd(before)
    os.close(writable)
    thread.join()
    os.close(readable)
