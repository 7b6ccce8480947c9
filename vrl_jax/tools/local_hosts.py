"""Runs a config as several processes on this machine, connected over the loopback interface.

    python -m vrl_jax.tools.local_hosts --processes 2 --config configs/quadratic.py --workdir runs/two

All other options are passed to launch.py. With `--compare` the config also runs in one process (into
WORKDIR_in_one_process), and the last line shows the difference of the train losses: rounding errors, which grow during
the training of a deep model.
"""

import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from vrl_jax.tools.arguments import ArgumentParser, expanded_path, positive_int, reports_errors

# Relative. 2 x 4 devices and 1 x 8 differed by 6e-5 after 60 steps of LeNet, as did 8 devices and 2.
_ROUNDING = 1e-3


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status: the first status of a process that is not 0, or else 0.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   main(['--processes', '1', '--workdir', f'{name}/run', '--config', 'nothing'])  # unknown config
  2
  """
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.local_hosts',
    description='Runs a config as several processes on this machine. All other options are passed to launch.py.',
    allow_abbrev=False,
  )
  parser.add_argument(
    '--processes', type=positive_int, default=2, metavar='N', help='number of processes; default: %(default)s'
  )
  parser.add_argument('--workdir', type=expanded_path, required=True, help='run directory')
  parser.add_argument(
    '--compare', action='store_true', help='also run the config in one process, and compare the train losses'
  )
  args, flags = parser.parse_known_args(argv)
  status = wait(start(args.processes, args.workdir, flags))
  if status or not args.compare:
    return status
  alone = args.workdir.with_name(f'{args.workdir.name}_in_one_process')
  print('\nthe same in one process:')
  if status := wait([_start(alone, flags)]):
    return status
  error = difference(args.workdir, alone)
  same = error <= _ROUNDING
  verdict = 'equal up to rounding' if same else 'NOT equal'
  print(f'\n{args.processes} processes and one: {verdict} (largest relative difference of the train loss: {error:.1g})')
  return 0 if same else 1


def start(processes: int, workdir: pathlib.Path, flags: Sequence[str], **options: Any) -> list[subprocess.Popen]:
  """Starts the processes of a run; the caller waits for them or stops them.

  Args:
    processes: their number.
    workdir: the run directory.
    flags: options of launch.py, for all processes.
    **options: passed to `subprocess.Popen`.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   processes = start(2, pathlib.Path(workdir), ['--help'], stdout=subprocess.DEVNULL)
  ...   [process.wait() for process in processes]
  [0, 0]
  """
  address = f'127.0.0.1:{free_port()}'
  several = [f'--coordinator_address={address}', f'--num_processes={processes}']
  return [_start(workdir, [*flags, *several, f'--process_id={i}'], **options) for i in range(processes)]


def _start(workdir, flags, **options):
  command = [sys.executable, '-m', 'vrl_jax', f'--workdir={workdir}', *flags]
  return subprocess.Popen(command, **options)


def wait(processes: Sequence[subprocess.Popen]) -> int:
  """Waits for the processes and forwards signals to them; returns the first exit status that is not 0, or else 0.

  >>> wait([subprocess.Popen([sys.executable, '-c', f'raise SystemExit({status})']) for status in (0, 3)])
  3
  """

  def forward(signum, _):
    for process in processes:
      process.send_signal(signum)

  before = {signum: signal.signal(signum, forward) for signum in (signal.SIGTERM, signal.SIGINT)}
  try:
    return next((status for status in [process.wait() for process in processes] if status), 0)
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)


def free_port() -> int:
  """A TCP port that is not in use.

  >>> 1024 <= free_port() < 65536
  True
  """
  with socket.create_server(('127.0.0.1', 0)) as server:
    return server.getsockname()[1]


def difference(workdir: str | os.PathLike, other: str | os.PathLike) -> float:
  """The largest relative difference between the train losses of two runs; infinite if their log points differ.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
  ...   _ = pathlib.Path(one, 'metrics.jsonl').write_text('{"step": 8, "train_loss": 0.5, "seconds": 1.0}')
  ...   _ = pathlib.Path(other, 'metrics.jsonl').write_text('{"step": 8, "train_loss": 0.4, "seconds": 9.0}')
  ...   round(difference(one, other), 3)
  0.2
  """
  lines = [(pathlib.Path(w) / 'metrics.jsonl').read_text().splitlines() for w in (workdir, other)]
  logs = [[json.loads(line) for line in each] for each in lines]
  if [line['step'] for line in logs[0]] != [line['step'] for line in logs[1]]:
    return math.inf
  losses = [(a['train_loss'], b['train_loss']) for a, b in zip(*logs)]
  return max(abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in losses)


if __name__ == '__main__':
  sys.exit(main())
