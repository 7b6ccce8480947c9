"""Runs launch.py on hosts of `namespaces`, a process each, and sees what training took and sent, and nothing else.

A run logs three times: before its first step, half-way and after its last. The links are shaped, and the counting of
bytes begins, when the first line is there: start-up (the coordinator, the initial weights, gloo's connections) is over,
and nothing compiled yet. They are counted, and the links widened for the last checkpoint, when the third is there. The
time is the run's own, of the rounds of its second half, when all processes have compiled; evaluation is not in it.

What is left in both are the rounds before a log point, which are measured and for that send two models more, and the
evaluation's few sums. `training` takes a short run off a long one, which leaves plain rounds.
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

from benchmarks.namespaces import Host
from vrl_jax import devices

ROOT = pathlib.Path(__file__).parents[1]
_ports = itertools.count(9100)  # another one for each run: the last one's may not be free yet


class Run(NamedTuple):
  """What a run of `steps` steps took and sent.

  Attributes:
    steps: of each worker.
    timed_steps: those of the second half.
    seconds: of the second half.
    sent: bytes that left the hosts' interfaces, summed over the hosts, with all headers.
    inside: bytes that stayed on their hosts, between devices of one.
    bytes_communicated: the run's own account for one worker.
    dropped: packets that the links' queues refused.
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
  """Plain rounds: what a long run took and sent more than a short one, for each step.

  Attributes:
    seconds: of a step.
    sent: bytes of a step, summed over the hosts' interfaces.
    inside: bytes of a step that stayed on a host.
    bytes_communicated: of a step, one worker's.
  """

  seconds: float
  sent: float
  inside: float
  bytes_communicated: float


def training(short: Run, long: Run) -> Training:
  """The difference of two runs, each with two measured rounds and three evaluations, for each step."""
  seconds = (long.seconds - short.seconds) / (long.timed_steps - short.timed_steps)
  steps = long.steps - short.steps
  return Training(seconds, *((getattr(long, name) - getattr(short, name)) / steps for name in Training._fields[1:]))


def launch(
  hosts: Sequence[Host], bandwidth: float | None, epochs: float, flags: Sequence[str], start: pathlib.Path, limit: float
) -> Run:
  """Runs launch.py on all hosts for so many epochs.

  Args:
    hosts: where.
    bandwidth: of their links, bits a second; None: not shaped.
    epochs: to train.
    flags: `--config` and the fields that matter.
    start: a folder with the initial weights of a run of the same config.
    limit: seconds after which the run is ended.

  Raises:
    subprocess.CalledProcessError: it did not end well, with what it said.
  """
  flags = [*flags, f'--config.epochs={epochs}', f'--config.eval_every={epochs / 2}', '--config.checkpoint_minutes=0.0']
  with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
    workdir = pathlib.Path(folder) / 'run'
    workdir.mkdir()
    for path in start.glob('initial_*.msgpack'):
      shutil.copy(path, workdir)
    said = [stack.enter_context(open(pathlib.Path(folder) / f'{i}.txt', 'w+')) for i in range(len(hosts))]
    commands = _commands(hosts, [*flags, f'--workdir={workdir}'], limit)
    processes = [stack.enter_context(_running(command, out)) for command, out in zip(commands, said)]
    for host in hosts:
      host.shape(None)
    _wait(workdir, processes, said, 1, limit)
    for host in hosts:
      host.shape(bandwidth)
    before = sum(host.sent_to_itself() for host in hosts)
    lines = _wait(workdir, processes, said, 3, limit)
    sent, inside = (sum(map(count, hosts)) for count in (Host.sent, Host.sent_to_itself))
    dropped = sum(map(Host.dropped, hosts))
    for host in hosts:
      host.shape(None)
    _wait(workdir, processes, said, 3, limit, ended=True)
    config = json.loads((workdir / 'config.json').read_text())
  last, timed = lines[-1], lines[-1]['step'] - lines[-2]['step']
  seconds = timed * config['workers'] * config['batch_size'] / last['examples_per_second']
  return Run(
    last['step'], timed, seconds, sent, inside - before, last['bytes_communicated'], dropped, last['train_loss']
  )


def launch_here(flags: Sequence[str]) -> None:
  """Runs launch.py as one process on this machine."""
  command = [sys.executable, 'launch.py', *flags]
  pipes = {'capture_output': True, 'text': True, 'env': devices.untouched_environment()}
  subprocess.run(command, cwd=ROOT, check=True, timeout=3600, **pipes)


def _commands(hosts, flags, limit):
  address = f'{hosts[0].address}:{next(_ports)}'
  for i, host in enumerate(hosts):
    who = [f'--coordinator_address={address}', f'--num_processes={len(hosts)}', f'--process_id={i}']
    who += ['--heartbeat_timeout_seconds=100']  # on a slow link a heartbeat waits behind the models
    program = [sys.executable, 'launch.py', *flags, *who]
    # timeout, because this process may be killed and could not end them any more
    yield ['timeout', '--kill-after=5', f'{limit + 60:.0f}', *host.command(program)]


@contextlib.contextmanager
def _running(command, out):
  environment = devices.untouched_environment()
  process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True)
  try:
    yield process
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)  # the supervising parent's end is its child's too
    process.wait()


def _wait(workdir, processes, said, count, limit, ended=False):
  """Waits until the run has logged `count` lines, or has ended; returns the lines."""
  log, deadline = workdir / 'metrics.jsonl', time.monotonic() + limit
  while True:
    states = [process.poll() for process in processes]
    text = log.read_text() if log.exists() else ''
    if (not ended and text.count('\n') >= count) or (ended and states == [0] * len(states)):
      return [json.loads(line) for line in text.splitlines()]
    if any(states) or None not in states or time.monotonic() > deadline:
      for file in said:
        file.seek(0)
      words = ' | '.join(file.read()[-500:].strip() for file in said)
      what = f'no line {count} after {limit:.0f} s' if not any(states) else f'statuses {states}'
      raise subprocess.CalledProcessError(next(filter(None, states), 1), ['launch.py'], stderr=f'{what}: {words}')
    time.sleep(0.02)
