"""A parent for each process of a multi-process run, which turns a crash of JAX's C++ runtime into one line and a status.

When a process dies, JAX ends the others in C++: SIGABRT with a stack trace and no Python exception. `launch.py`
therefore runs the training in a child whose Python code writes to the terminal, while C++ output goes to a file.
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

from vrl_jax.cluster.join import Cluster, join_error
from vrl_jax.errors import LostContact, UserError
from vrl_jax.system.signals import StopRequest

RESTART = 'restart all processes with the same commands to resume from the last checkpoint'
# In the environment of the child: the file descriptors of its stdout, its stderr and the pipe of `attach_to_parent`.
_DESCRIPTORS = 'VRL_JAX_SUPERVISED'


def is_supervised() -> bool:
  """Whether this process is the child of `supervise`.

  >>> is_supervised()
  False
  """
  return _DESCRIPTORS in os.environ


def supervise(cluster: Cluster, stop: StopRequest) -> int:
  """Runs the command line of this process again in a child, and waits for it.

  Signals are forwarded to the child. If this process is killed, the child ends too.

  Args:
    cluster: this process and its coordinator.
    stop: the signals of this process.

  Returns:
    The child's exit status; 6 if it lost contact to the other processes, 128 + the signal if it was killed.
  """
  listening, held = os.pipe()
  out, err = os.dup(1), os.dup(2)
  with tempfile.NamedTemporaryFile('w', prefix='vrl_jax_', suffix='.log', delete=False) as cpp_output:
    child = subprocess.Popen(
      [sys.executable, *sys.orig_argv[1:]],
      stdin=subprocess.DEVNULL,
      stdout=cpp_output,
      stderr=cpp_output,
      pass_fds=(out, err, listening),
      env=os.environ | {_DESCRIPTORS: f'{out},{err},{listening}'},
      process_group=0,  # Ctrl-C then reaches it only once, forwarded from here
    )
  os.close(listening)
  try:
    with stop.forwarded(child.send_signal):
      status = child.wait()
  finally:
    for descriptor in (held, out, err):
      os.close(descriptor)
  log = pathlib.Path(cpp_output.name)
  if status >= 0:
    log.unlink(missing_ok=True)
    return status
  message, status = _diagnose(-status, cluster, log)
  print(f'error: {message}', file=sys.stderr)
  return status


def attach_to_parent() -> None:
  """In the child: writes Python's stdout and stderr to those of the parent, and ends with the parent."""
  out, err, listening = map(int, os.environ.pop(_DESCRIPTORS).split(','))
  sys.stdout = open(out, 'w', buffering=1)
  sys.stderr = open(err, 'w', buffering=1)

  def watch():
    os.read(listening, 1)  # the parent never writes, so this returns when it has ended
    # In a thread, sys.exit would not end the process; the status is that of a killed parent.
    os._exit(128 + signal.SIGKILL)

  threading.Thread(target=watch, daemon=True, name='watch the parent').start()


def is_lost_contact(error: Exception) -> bool:
  """Whether JAX raised the error because another process has ended.

  >>> lost = jax.errors.JaxRuntimeError('UNAVAILABLE: connection closed by peer')
  >>> is_lost_contact(lost), is_lost_contact(ValueError('connection closed'))
  (True, False)
  """
  words = r'gloo|nccl|coordination|heartbeat|socket|connection|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED'
  return isinstance(error, jax.errors.JaxRuntimeError) and bool(re.search(words, str(error), re.IGNORECASE))


def wait_for_jax_to_abort(heartbeat_timeout_seconds: float) -> None:
  """Waits for JAX to abort this process; the parent then reports which process died."""
  time.sleep(min(1.5 * heartbeat_timeout_seconds + 5, 40))


def _diagnose(signum, cluster, log):
  """The message and the exit status, from the signal that ended the child and JAX's output."""
  with contextlib.suppress(OSError):
    output = log.read_text(errors='replace')
    if signum == signal.SIGABRT and 'CoordinationService/RegisterTask' in output:
      log.unlink(missing_ok=True)
      status = re.search(r'absl::Status: (.*)', output)
      return join_error(cluster, status[1] if status else "JAX's runtime has aborted"), UserError.exit_status
    if signum == signal.SIGABRT:
      lost = 'another process'
      if silent := re.search(r'stopped sending heartbeats\):((?:\s+\d+)+)', output):
        lost = f'process {", ".join(silent[1].split())}'
      elif 'Failed to send RPC to coordination service' in output:
        lost = 'process 0, the coordinator'
      return f"{cluster.name}: lost contact to {lost}; {RESTART} (JAX's output is in {log})", LostContact.exit_status
  ended = f'ended by {signal.Signals(signum).name}'
  return f"{cluster.name}: {ended}; {RESTART} (JAX's output is in {log})", 128 + signum
