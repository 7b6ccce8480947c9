"""Signals at any moment: recorded once, heeded where a run can stop, never lost."""

import gc
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
from support.launches import TIMEOUT, one_line, start, wait_until

from vrl_jax.errors import Interrupted
from vrl_jax.system.signals import StopRequest


class SendsASignal:
  """Receives a signal where Python replaces exceptions, by RuntimeError before 3.12."""

  def __set_name__(self, owner, name):
    signal.raise_signal(signal.SIGTERM)


def in_a_callback_of_the_garbage_collector():
  def callback(phase, info):
    if phase == 'start':
      signal.raise_signal(signal.SIGTERM)

  gc.callbacks.append(callback)
  try:
    gc.collect()
  finally:
    gc.callbacks.remove(callback)


@pytest.mark.parametrize(
  'receive', [in_a_callback_of_the_garbage_collector, lambda: type('', (), {'x': SendsASignal()})]
)
def test_a_signal_is_recorded_where_exceptions_are_swallowed(receive):
  request = StopRequest()
  with request.handles_signals():
    receive()
    for _ in range(2):  # also if the first exception is swallowed
      with pytest.raises(Interrupted, match='stopped by SIGTERM'):
        request.check()


def run_code(code, *signals):
  """Runs code that prints a line, sends it signals and returns its status and stderr."""
  process = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  assert process.stdout.readline()
  for signum in signals:
    process.send_signal(signum)
    time.sleep(0.05)
  _, err = process.communicate(timeout=TIMEOUT)
  return process.returncode, err


_START = """
import time
from vrl_jax.system.signals import watched_stop_requests
with watched_stop_requests() as stop:
  print('started', flush=True)
"""


def test_a_process_that_does_not_stop_while_it_starts_is_ended():
  status, err = run_code(_START + '  time.sleep(1000)', signal.SIGTERM)
  assert (status, one_line(err)) == (
    143,
    'stopped by SIGTERM; rerun the same command to resume from the last checkpoint',
  )


def test_while_it_is_deferred_only_a_second_sigint_ends_the_process():
  code = _START + '  with stop.deferred():\n    time.sleep(4)\n    print(stop.signum)'
  status, err = run_code(code, signal.SIGTERM, signal.SIGINT)
  assert (status, err.splitlines()[-1]) == (1, 'vrl_jax.errors.Interrupted: stopped by SIGTERM')
  status, err = run_code(code, signal.SIGINT, signal.SIGINT)
  assert (status, one_line(err)[:32]) == (130, 'stopped without a new checkpoint')


def has_loaded_jax(process):
  """Python itself cannot be interrupted cleanly, and signals are handled before JAX is imported."""
  return 'jaxlib' in pathlib.Path(f'/proc/{process.pid}/maps').read_text()


def check_a_signal_while_it_starts(workdir, signum, seconds, module):
  process = start(workdir, '--config.steps=1000000', program=('-m', 'vrl_jax') if module else ('launch.py',))
  try:
    wait_until(lambda: has_loaded_jax(process), process)
    time.sleep(seconds)
    process.send_signal(signum)
    out, err = process.communicate(timeout=TIMEOUT)
  finally:
    process.kill()
  assert process.returncode == 128 + signum, (out, err)
  assert f'stopped by {signal.Signals(signum).name}' in one_line(err)
  assert 'Exception ignored' not in out


@pytest.mark.parametrize(
  ('signum', 'seconds', 'module'),
  [(signal.SIGINT, 0.0, True), (signal.SIGTERM, 0.4, False), (signal.SIGINT, 0.8, False), (signal.SIGTERM, 1.5, True)],
)
def test_a_signal_while_it_starts(signum, seconds, module, tmp_path):
  check_a_signal_while_it_starts(tmp_path / 'run', signum, seconds, module)


@pytest.mark.slow
def test_100_signals_while_it_starts(tmp_path):
  rng = random.Random(0)
  for number in range(100):
    signum = (signal.SIGINT, signal.SIGTERM)[number % 2]
    check_a_signal_while_it_starts(tmp_path / f'{number}', signum, rng.uniform(0, 3), module=number % 4 < 2)
