"""Standard streams to which every line can be written."""

import io
import os
import sys


def prepare_streams() -> None:
  """Makes sure that printing neither fails nor waits in a buffer; a command calls it once, at its start.

  A stream that the shell has closed (`>&-`) discards what is written. A character that the encoding of the terminal
  does not have is escaped. What is printed to a log file is in it at once, even if the process is killed later.

  >>> prepare_streams()
  >>> None in (sys.stdout, sys.stderr)
  False
  """
  for name, mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
    if getattr(sys, name) is None:
      # Takes the file descriptor of the closed stream, so that no file of the run does: C++ libraries write to it.
      setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, closefd=False))
  for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):  # a notebook's is not
      stream.reconfigure(line_buffering=True, errors='backslashreplace')
