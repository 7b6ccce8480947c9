"""Reports errors: one line on stderr, an exit status, and a message to the other processes."""

import os
import shlex
import sys
import threading
from collections.abc import Sequence

from vrl_jax.cluster import processes


class Ending:
  """Reports the end of this process once, from the main thread or the listener thread, whichever is first.

  >>> Ending().report('error: period=0', status=2)  # prints the line on stderr
  2
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()

  def report(self, line: str, status: int, *, at_once: bool = False, everywhere: bool = False) -> int:
    """Prints the line and notifies the other processes; does not return in a run of several.

    Args:
      line: printed on stderr.
      status: the exit status.
      at_once: exits immediately, without Python's clean-up.
      everywhere: every process raises the same error, so the others are not notified.

    Returns:
      The status.
    """
    several = processes.count() > 1
    if several:
      self._lock.acquire()  # never released: another thread waits here until the process has ended
    print(line, file=sys.stderr)
    if several:
      if not everywhere:
        processes.report_end(line.removeprefix('error: '), status)
      processes.leave()
    if at_once or several:  # JAX would wait for the other processes
      for stream in (sys.stdout, sys.stderr):
        if stream is not None:
          stream.flush()
      os._exit(status)
    return status

  def follow(self, message: str, status: int) -> None:
    """Ends this process because another one has reported its end; called in the thread that listens."""
    self.report(f'error: {processes.name()}: {message}', status)


def one_line(error: BaseException) -> str:
  """An error's message on one line.

  >>> one_line(ValueError('a\\n  b')), one_line(KeyError())
  ('a b', 'KeyError')
  """
  return ' '.join(str(error).split()) or type(error).__name__


def resume_command(argv: Sequence[str], workdir: os.PathLike | None) -> str:
  """The command line that resumes a run; it names the run directory even if the original one did not.

  >>> resume_command(['launch.py', '--config', 'quadratic'], 'runs/a')
  'launch.py --config quadratic --workdir=runs/a'
  """
  command = list(sys.orig_argv if argv is sys.argv else argv)
  given = any(arg.lstrip('-').split('=')[0] == 'workdir' for arg in argv[1:] if arg.startswith('-'))
  return shlex.join(command if given or workdir is None else [*command, f'--workdir={workdir}'])
