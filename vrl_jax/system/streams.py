"""Standard streams to which writing never fails."""

import io
import os
import sys

from vrl_jax.errors import StorageError


def prepare_streams() -> None:
  """Makes stdout and stderr line-buffered, and printing never fail; a command calls it once, at its start.

  Output to a stream that the shell has closed (`>&-`) or whose reader has ended (`| head`) is discarded. Characters that
  the encoding of the terminal lacks are escaped. If stdout is a file that cannot be written, StorageError is raised.

  >>> prepare_streams()
  >>> None in (sys.stdout, sys.stderr)
  False
  """
  for name, mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
    if getattr(sys, name) is None:
      # Takes the file descriptor of the closed stream, so that no file of the run does: C++ libraries write to it.
      setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, closefd=False))
  for name in ('stdout', 'stderr'):
    stream = getattr(sys, name)
    if type(stream) is io.TextIOWrapper:  # a notebook's is not
      setattr(sys, name, _Stream(stream, name))


class _Stream(io.TextIOWrapper):
  """A standard stream that discards everything once a write has failed."""

  def __init__(self, stream, name):
    stream.flush()
    super().__init__(stream.buffer, stream.encoding, 'backslashreplace', line_buffering=True)
    self._stream = stream  # kept, because it would close the buffer
    self._name = name

  def write(self, text):
    try:
      return super().write(text)
    except OSError as error:
      self._discard(error)
      return len(text)

  def flush(self):
    try:
      super().flush()
    except OSError as error:
      self._discard(error)

  def _discard(self, error):
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, self.fileno())  # also for what is still in the buffer
    os.close(null)
    if self._name == 'stdout' and not isinstance(error, BrokenPipeError):
      raise StorageError(f'stdout cannot be written ({error.strerror})') from None
