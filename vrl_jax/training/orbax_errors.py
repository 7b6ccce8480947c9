"""One line for an error of Orbax or TensorStore."""

import contextlib
import gc
import logging
import os
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator

_PENDING_SECONDS = 0.3  # the last 'Event loop is closed' of 30 arrays came after 5 ms


def cause(error: Exception) -> str:
  """The cause of an error: that of the operating system if TensorStore names one, else the first line of the message.

  >>> cause(ValueError('NOT_FOUND: no such file\\nat tensorstore/kvstore.cc:12')), cause(KeyError())
  ('NOT_FOUND: no such file', 'KeyError')
  >>> cause(ValueError("RESOURCE_EXHAUSTED: Error opening \\"zarr\\" driver: … [os_error_code='28'] [tensorstore_spec=…]"))
  'No space left on device'
  >>> cause(OSError(28, 'No space left on device', '/proc/self/fd/5/checkpoints'))
  'No space left on device'
  """
  if code := re.search(r"os_error_code=\\?'(\d+)", str(error)):
    return os.strerror(int(code[1]))
  if isinstance(error, OSError) and error.strerror:  # the path can be one that only this process has
    return error.strerror
  lines = str(error).strip().splitlines()
  return textwrap.shorten(lines[0], 160, placeholder='…') if lines else type(error).__name__


@contextlib.contextmanager
def without_secondary_errors() -> Iterator[None]:
  """Inside, TensorStore and asyncio print no tracebacks of their own.

  When an array cannot be read or written, Orbax raises the error of that array and closes its event loop. For the other
  arrays, Python then prints 'Event loop is closed' if they are still in progress, and asyncio logs 'exception was never
  retrieved' if they have failed too. If the block raises an error, waits briefly for these before re-raising.

  >>> before = sys.unraisablehook
  >>> with without_secondary_errors():
  ...   sys.unraisablehook == before
  False
  >>> sys.unraisablehook == before
  True
  """
  before, logger = sys.unraisablehook, logging.getLogger('asyncio')

  def hook(unraisable):
    if str(unraisable.exc_value) != 'Event loop is closed':
      before(unraisable)

  sys.unraisablehook = hook
  logger.addFilter(_is_primary)
  try:
    yield
  except Exception as error:
    traceback.clear_frames(error.__traceback__)  # they refer to the futures of the other arrays
    time.sleep(_PENDING_SECONDS)
    gc.collect()
    raise
  finally:
    sys.unraisablehook = before
    logger.removeFilter(_is_primary)


def _is_primary(record):
  error = record.exc_info[1] if record.exc_info else None
  return not ('never retrieved' in record.getMessage() and 'tensorstore' in str(error))
