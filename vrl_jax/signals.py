"""SIGTERM and SIGINT: at once while a run gets ready, at the end of a round while it trains."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

_REMINDER = 2.0  # seconds, longer than anything takes that cleans up
_watching = False  # whether a thread ends the process at the second SIGINT


class Interrupted(KeyboardInterrupt):
  """The run was stopped by a signal; the same call goes on where it stopped.

  No `Exception`, so that nobody takes it for a file that cannot be read and tries the next.

  >>> Interrupted('stopped by SIGTERM', signal.SIGTERM).exit_status
  143
  """

  def __init__(self, message: str, signum: int):
    """Takes the signal for the exit status, 128 + its number."""
    super().__init__(message)
    self.signum = signum
    self.exit_status = 128 + signum


class StopRequest:
  """What became of the signals.

  Attributes:
    signum: the first that came, or None.

  >>> try:
  ...   with stop_requests() as request, request.deferred():
  ...     signal.raise_signal(signal.SIGTERM)
  ...     print(f'{request.name} has come; the round goes on to its end')
  ... except Interrupted as error:
  ...   print(error)
  SIGTERM has come; the round goes on to its end
  stopped by SIGTERM
  """

  def __init__(self):
    self.signum: int | None = None
    self._deferred = False

  @property
  def name(self) -> str:
    """The name of that signal."""
    return signal.Signals(self.signum).name

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Within, the first signal only sets `signum`, and Interrupted is raised at the end if nobody acted on it.

    A second SIGINT raises KeyboardInterrupt.
    """
    self._deferred = True
    acted = False
    try:
      yield
    except KeyboardInterrupt:
      acted = True
      raise
    finally:
      self._deferred = False
      if self.signum is not None and not acted:
        raise Interrupted(f'stopped by {self.name}', self.signum)

  def note(self, signum: int, frame: object) -> None:
    """The signal handler."""
    del frame
    again, self.signum = self.signum is not None, self.signum or signum
    if not self._deferred:
      self.remind()
    if again and signum == signal.SIGINT and not _watching:
      raise KeyboardInterrupt

  def remind(self, *_: object) -> None:
    """Raises Interrupted, and again later: an exception inside one of JAX's callbacks is printed and forgotten."""
    if not self._deferred:
      signal.setitimer(signal.ITIMER_REAL, _REMINDER)
      raise Interrupted(f'stopped by {self.name}', self.signum)


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
  """While active, SIGTERM and SIGINT raise Interrupted, or are put off (see `StopRequest.deferred`).

  >>> try:
  ...   with stop_requests():
  ...     signal.raise_signal(signal.SIGTERM)
  ... except Interrupted as error:
  ...   print(error, 'at once')
  stopped by SIGTERM at once
  """
  request = StopRequest()
  if threading.current_thread() is not threading.main_thread():
    yield request  # only the main thread may handle signals
    return
  handlers = {signal.SIGTERM: request.note, signal.SIGINT: request.note, signal.SIGALRM: request.remind}
  before = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
  try:
    yield request
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    for signum, handler in before.items():
      signal.signal(signum, handler)


@contextlib.contextmanager
def exit_at_second_interrupt(message: str) -> Iterator[None]:
  """While active, a second SIGINT says `message` and ends the process with status 130, however busy JAX is.

  Python runs signal handlers only between bytecodes of the main thread, so a long compilation or round would hold them
  up; the wake-up descriptor is written to at once, and a thread listens to it.

  >>> with exit_at_second_interrupt('stopped at once'), stop_requests() as request:
  ...   try:
  ...     signal.raise_signal(signal.SIGINT)  # the first: the run stops in good order
  ...   except Interrupted as error:
  ...     print(error)
  stopped by SIGINT
  """
  global _watching
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  listening, speaking = os.pipe()
  os.set_blocking(speaking, False)

  def watch():
    interrupts = 0
    while byte := os.read(listening, 1):
      interrupts += byte[0] == signal.SIGINT
      if interrupts == 2:
        print(message, file=sys.stderr, flush=True)
        os._exit(128 + signal.SIGINT)

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  before = signal.set_wakeup_fd(speaking, warn_on_full_buffer=False)
  _watching = True
  try:
    yield
  finally:
    _watching = False
    signal.set_wakeup_fd(before)
    os.close(speaking)
    thread.join()
    os.close(listening)
