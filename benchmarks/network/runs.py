"""Runs launch.py on the hosts of `namespaces`, one process each, and measures the time and the bytes of training only.

A run logs three times: before its first step, half-way and after its last step. The links are limited, and the counting
of bytes starts, when the first line is logged: start-up (coordinator, initial weights, gloo's connections) is over and
nothing is compiled yet. When the third line is logged, the bytes are read and the links are no longer limited, for the
last checkpoint. The time is that of the rounds of the second half, as the run reports it, when all processes have
compiled; it does not contain evaluation.

Time and bytes still contain the rounds before a log point, which send two more models for their metrics, and the few
sums of the evaluation. `training` subtracts a short run from a long one, which leaves plain rounds.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.network import ROOT
from benchmarks.network.namespaces import Host

_ports = itertools.count(9100)  # a new one for each run: the last one may still be in use


class Run(NamedTuple):
  """The time and the bytes of a run.

  Attributes:
    steps: of each worker.
    timed_steps: the steps of the second half.
    seconds: of the second half.
    sent: bytes sent by the interfaces of all hosts, including all headers.
    inside: bytes sent between devices of the same host.
    bytes_communicated: the run's own count, for one worker.
    dropped: packets dropped by the queues of the links.
    train_loss: at the end.
  """

  steps: int
  timed_steps: int
  seconds: float
  sent: int
  inside: int
  bytes_communicated: int
  dropped: int
  train_loss: float


class Training(NamedTuple):
  """The time and the bytes of a step in plain rounds.

  Attributes:
    seconds: of a step.
    sent: bytes of a step, of the interfaces of all hosts.
    inside: bytes of a step between devices of the same host.
    bytes_communicated: of a step, for one worker.
  """

  seconds: float
  sent: float
  inside: float
  bytes_communicated: float


def training(short: Run, long: Run) -> Training:
  """The difference of two runs per step; both have two measured rounds and three evaluations."""
  seconds = (long.seconds - short.seconds) / (long.timed_steps - short.timed_steps)
  steps = long.steps - short.steps
  return Training(seconds, *((getattr(long, name) - getattr(short, name)) / steps for name in Training._fields[1:]))


def launch(
  hosts: Sequence[Host],
  flags: Sequence[str],
  *,
  epochs: float,
  bandwidth: float | None,
  start: pathlib.Path,
  timeout: float,
) -> Run:
  """Runs launch.py on all hosts.

  Args:
    hosts: the hosts, one process each.
    flags: `--config` and fields of it.
    epochs: to train.
    bandwidth: of the links in bits per second; None does not limit them.
    start: a directory with the initial weights of a run of the same config.
    timeout: seconds after which the run is killed.

  Raises:
    subprocess.CalledProcessError: the run failed; has the output.
  """
  flags = [*flags, f'--config.epochs={epochs}', f'--config.eval_every={epochs / 2}', '--config.checkpoint_minutes=0.0']
  with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
    workdir = pathlib.Path(directory) / 'run'
    workdir.mkdir()
    for path in start.glob('initial_*.msgpack'):
      shutil.copy(path, workdir)
    outputs = [stack.enter_context(open(pathlib.Path(directory) / f'{i}.txt', 'w+')) for i in range(len(hosts))]
    commands = _commands(hosts, [*flags, f'--workdir={workdir}'], timeout)
    processes = [stack.enter_context(_running(command, out)) for command, out in zip(commands, outputs)]
    wait = lambda lines, **kwargs: _wait(workdir, processes, outputs, lines=lines, timeout=timeout, **kwargs)
    for host in hosts:
      host.limit(None)
    wait(1)
    for host in hosts:
      host.limit(bandwidth)
    inside_before = sum(host.sent_to_itself() for host in hosts)
    log = wait(3)
    sent = sum(host.sent() for host in hosts)
    inside = sum(host.sent_to_itself() for host in hosts) - inside_before
    dropped = sum(host.dropped() for host in hosts)
    for host in hosts:
      host.limit(None)
    wait(3, until_exit=True)
    config = json.loads((workdir / 'config.json').read_text())
  last, timed_steps = log[-1], log[-1]['step'] - log[-2]['step']
  return Run(
    steps=last['step'],
    timed_steps=timed_steps,
    seconds=timed_steps * config['workers'] * config['batch_size'] / last['examples_per_second'],
    sent=sent,
    inside=inside,
    bytes_communicated=last['bytes_communicated'],
    dropped=dropped,
    train_loss=last['train_loss'],
  )


def launch_here(flags: Sequence[str]) -> None:
  """Runs launch.py as one process on this machine."""
  command = [sys.executable, 'launch.py', *flags]
  pipes = {'capture_output': True, 'text': True, 'env': dict(os.environ)}
  subprocess.run(command, cwd=ROOT, check=True, timeout=3600, **pipes)


def _commands(hosts, flags, timeout):
  address = f'{hosts[0].address}:{next(_ports)}'
  for i, host in enumerate(hosts):
    membership = [f'--coordinator_address={address}', f'--num_processes={len(hosts)}', f'--process_id={i}']
    membership += ['--heartbeat_timeout_seconds=100']  # on a slow link a heartbeat waits behind the models
    program = [sys.executable, 'launch.py', *flags, *membership]
    # `timeout`, because if this process is killed it cannot end them
    yield ['timeout', '--kill-after=5', f'{timeout + 60:.0f}', *host.command(program)]


@contextlib.contextmanager
def _running(command, out):
  environment = dict(os.environ)
  process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True)
  try:
    yield process
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)  # when the supervising parent dies, so does its child
    process.wait()


def _wait(workdir, processes, outputs, *, lines, timeout, until_exit=False):
  """Waits until the run has logged this number of lines, or has ended; returns the log."""
  log, deadline = workdir / 'metrics.jsonl', time.monotonic() + timeout
  while True:
    statuses = [process.poll() for process in processes]
    text = log.read_text() if log.exists() else ''
    if (not until_exit and text.count('\n') >= lines) or (until_exit and statuses == [0] * len(statuses)):
      return [json.loads(line) for line in text.splitlines()]
    if any(statuses) or None not in statuses or time.monotonic() > deadline:
      for file in outputs:
        file.seek(0)
      output = ' | '.join(file.read()[-500:].strip() for file in outputs)
      problem = f'no line {lines} after {timeout:.0f} s' if not any(statuses) else f'exit statuses {statuses}'
      raise subprocess.CalledProcessError(next(filter(None, statuses), 1), ['launch.py'], stderr=f'{problem}: {output}')
    time.sleep(0.02)
