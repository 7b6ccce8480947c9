"""launch.py as several real processes on this machine."""

import subprocess

from support.launches import TIMEOUT, start

from vrl_jax.tools.local_hosts import free_port


def cluster_flags(number, heartbeat=60):
  """The flags that all processes of a run have in common, with a free port."""
  several = [f'--coordinator_address=127.0.0.1:{free_port()}', f'--num_processes={number}']
  return [*several, f'--heartbeat_timeout_seconds={heartbeat}', f'--initialization_timeout={TIMEOUT}']


def start_all(number, workdir, *flags, extra_flags=None, heartbeat=60, **kwargs):
  """Starts the processes; `extra_flags` maps process indices to flags of these processes only."""
  flags, extra_flags = (*flags, *cluster_flags(number, heartbeat)), extra_flags or {}
  return [start(workdir, *flags, f'--process_id={i}', *extra_flags.get(i, ()), **kwargs) for i in range(number)]


def wait_all(processes, seconds=TIMEOUT):
  """Returns [(status, stdout, stderr)] of all processes; kills those that are still running after `seconds`."""
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
  """Runs the processes to the end, which must be a success without stderr; returns process 0's stdout."""
  ends = wait_all(start_all(number, workdir, *flags, **kwargs))
  assert [(status, err) for status, _, err in ends] == [(0, '')] * number, ends
  return ends[0][1]


def child(process):
  """The process id of the child that a launch supervises."""
  shown = subprocess.run(['ps', '-o', 'pid=', '--ppid', str(process.pid)], capture_output=True, text=True, check=True)
  (pid,) = shown.stdout.split()
  return int(pid)
