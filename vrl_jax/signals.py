"""SIGTERM and SIGINT as a wish to stop that the training loop grants at the end of a round."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from vrl_jax.errors import UserError


class Interrupted(UserError):
  """The run was stopped by a signal, and can go on."""

  def __init__(self, message: str, signum: int):
    """Takes the signal for the exit status, 128 + its number."""
    super().__init__(message)
    self.signum = signum
    self.exit_status = 128 + signum


class StopRequest:
  """The signal that asked to stop, if any did."""

  signum: int | None = None


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
  """While active, the first SIGTERM or SIGINT only sets `signum`; a second SIGINT raises KeyboardInterrupt at once."""
  request = StopRequest()
  if threading.current_thread() is not threading.main_thread():
    yield request  # only the main thread may handle signals
    return

  def note(signum, frame):
    del frame
    if request.signum is not None and signum == signal.SIGINT:
      raise KeyboardInterrupt
    request.signum = signum

  before = {signum: signal.signal(signum, note) for signum in (signal.SIGTERM, signal.SIGINT)}
  try:
    yield request
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)
