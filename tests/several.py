"""launch.py as several real processes on this machine."""

import subprocess

from launches import start

from vrl_jax.tools.local_hosts import free_port

PATIENCE = 240  # seconds, on a busy machine


def membership(number, heartbeat=60):
  """The flags that all processes of a run have in common, with a port of their own."""
  several = [f'--coordinator_address=127.0.0.1:{free_port()}', f'--num_processes={number}']
  return [*several, f'--heartbeat_timeout_seconds={heartbeat}', f'--initialization_timeout={PATIENCE}']


def start_all(number, workdir, *flags, own=None, heartbeat=60, **kwargs):
  """Starts the processes; `own` has flags of single processes."""
  flags, own = (*flags, *membership(number, heartbeat)), own or {}
  return [start(workdir, *flags, f'--process_id={i}', *own.get(i, ()), **kwargs) for i in range(number)]


def wait_all(processes, seconds=PATIENCE):
  """[(status, stdout, stderr)] of all; none is left running, whatever happens."""
  try:
    texts = [process.communicate(timeout=seconds) for process in processes]
    return [(process.returncode, *text) for process, text in zip(processes, texts)]
  finally:
    end_all(processes)


def end_all(processes):
  for process in processes:
    if process.poll() is None:
      process.kill()
      process.wait()


def launch_all(number, workdir, *flags, **kwargs):
  """Runs them to the end, which must be a good one; returns process 0's stdout."""
  ends = wait_all(start_all(number, workdir, *flags, **kwargs))
  assert [(status, err) for status, _, err in ends] == [(0, '')] * number, ends
  return ends[0][1]


def child(process):
  """The process id of a launch's working child, which its parent supervises."""
  shown = subprocess.run(['ps', '-o', 'pid=', '--ppid', str(process.pid)], capture_output=True, text=True, check=True)
  (pid,) = shown.stdout.split()
  return int(pid)
