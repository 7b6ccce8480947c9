"""A parent for each process of a run of several: it turns the death of JAX's C++ runtime into one line and a status.

When a process dies, JAX ends those that are left in C++: SIGABRT, a stack, and no Python exception. So `launch.py` runs
the work in a child, whose Python writes to the terminal as ever while what C++ writes goes to a file.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import jax

from vrl_jax import devices, joining
from vrl_jax.errors import UserError
from vrl_jax.joining import Cluster

RESTART = 'start all processes again with the same commands, and they go on from the last checkpoint'
_MARK = 'VRL_JAX_SUPERVISED'  # in the child's environment: its stdout, its stderr, and the pipe of `_end_with_parent`


class LostContact(UserError):
  """Another process of the run has died, or cannot be reached any more.

  >>> LostContact('lost contact to process 1').exit_status
  6
  """

  exit_status = 6


def is_supervised() -> bool:
  """Whether this process is such a child.

  >>> is_supervised()
  False
  """
  return _MARK in os.environ


def supervise(cluster: Cluster) -> int:
  """Runs this process's own command line again, in a child, and waits for it.

  Signals are passed on. If this process is killed, the child ends too.

  Args:
    cluster: what this process knows of the others.

  Returns:
    The child's status; 6 if it lost contact to the others, 128 + the signal's number if something else killed it.
  """
  listening, held = os.pipe()
  out, err = os.dup(1), os.dup(2)
  with tempfile.NamedTemporaryFile('w', prefix='vrl_jax_', suffix='.log', delete=False) as noise:
    child = subprocess.Popen(
      [sys.executable, *sys.orig_argv[1:]],
      stdin=subprocess.DEVNULL,
      stdout=noise,
      stderr=noise,
      pass_fds=(out, err, listening),
      env=devices.untouched_environment() | {_MARK: f'{out},{err},{listening}'},
      process_group=0,  # so that Ctrl-C comes once, from here
    )
  os.close(listening)
  forwarded = (signal.SIGTERM, signal.SIGINT)
  before = {signum: signal.signal(signum, lambda signum, _: child.send_signal(signum)) for signum in forwarded}
  try:
    status = child.wait()
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)
    for descriptor in (held, out, err):
      os.close(descriptor)
  log = pathlib.Path(noise.name)
  if status >= 0:
    log.unlink(missing_ok=True)
    return status
  told, status = _what_happened(-status, cluster, log)
  print(f'error: {told}', file=sys.stderr)
  return status


def be_supervised() -> None:
  """In the child: Python's stdout and stderr are the parent's again, and it does not outlive the parent."""
  out, err, listening = map(int, os.environ.pop(_MARK).split(','))
  sys.stdout = open(out, 'w', buffering=1)
  sys.stderr = open(err, 'w', buffering=1)

  def watch():
    os.read(listening, 1)  # returns when the parent, who never writes, is gone
    os._exit(128 + signal.SIGKILL)

  threading.Thread(target=watch, daemon=True, name='watch the parent').start()


def is_lost_contact(error: Exception) -> bool:
  """Whether JAX raised it because another process is gone.

  >>> lost = jax.errors.JaxRuntimeError('UNAVAILABLE: connection closed by peer')
  >>> is_lost_contact(lost), is_lost_contact(ValueError('connection closed'))
  (True, False)
  """
  words = r'gloo|nccl|coordination|heartbeat|socket|connection|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED'
  return isinstance(error, jax.errors.JaxRuntimeError) and bool(re.search(words, str(error), re.IGNORECASE))


def wait_for_the_end(heartbeat_timeout_seconds: float) -> None:
  """Gives JAX the time to find out which process is gone: it then ends this one, and the parent says which it was."""
  time.sleep(min(1.5 * heartbeat_timeout_seconds + 5, 40))


def _what_happened(signum, cluster, log):
  """One line and a status, from the signal that ended the child and the last words of JAX."""
  with contextlib.suppress(OSError):
    words = log.read_text(errors='replace')
    if signum == signal.SIGABRT and 'CoordinationService/RegisterTask' in words:
      log.unlink(missing_ok=True)
      status = re.search(r'absl::Status: (.*)', words)
      return joining.trouble(cluster, status[1] if status else 'its runtime has ended'), UserError.exit_status
    if signum == signal.SIGABRT:
      gone = 'another process'
      if silent := re.search(r'stopped sending heartbeats\):((?:\s+\d+)+)', words):
        gone = f'process {", ".join(silent[1].split())}'
      elif 'Failed to send RPC to coordination service' in words:
        gone = 'process 0, the coordinator'
      told = f'{cluster.name}: lost contact to {gone}; {RESTART} (the words of JAX are in {log})'
      return told, LostContact.exit_status
  told = f'{cluster.name}: ended by {signal.Signals(signum).name}; {RESTART} (the words of JAX are in {log})'
  return told, 128 + signum
