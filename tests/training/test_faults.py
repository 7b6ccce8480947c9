"""Real processes that are stopped, killed, out of disk space, or whose files are damaged."""

import asyncio
import gc
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at, small_config
from support.launches import (
  CACHE,
  CONFIG,
  ROOT,
  TIMEOUT,
  assert_same_run,
  checkpoint_steps,
  command,
  contents,
  launch,
  one_line,
  start,
  summary,
  wait_until,
)
from support.mounts import mounted as mounted

from vrl_jax.cli import launch as cli
from vrl_jax.errors import DataError, Interrupted, StorageError
from vrl_jax.training import orbax_errors
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.restore import with_checksum

LONG = '--config.steps=600'


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
  """An uninterrupted run, without the compilation cache."""
  folder = tmp_path_factory.mktemp('uninterrupted') / 'run'
  status, _, err = launch(folder, '--config.compilation_cache=False')
  assert (status, err) == (0, '')
  return folder


@pytest.fixture(scope='module')
def stopped(tmp_path_factory):
  """A run that SIGTERM stopped halfway: (run directory, status, stdout, stderr)."""
  folder = tmp_path_factory.mktemp('stopped') / 'run'
  process = start(folder)
  wait_until(lambda: len(checkpoint_steps(folder)) >= 3, process)
  process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=TIMEOUT)
  return folder, process.returncode, out, err


def test_sigterm_finishes_the_round_and_prints_the_command_to_resume(stopped, uninterrupted):
  folder, status, _, err = stopped
  assert status == 128 + signal.SIGTERM
  line = one_line(err)
  step = checkpoint_steps(folder)[-1]
  assert f'stopped by SIGTERM; will resume from step {step} of 150' in line
  assert summary(folder)['status'] == 'interrupted'
  resume = line.split('to resume: ')[1]
  assert resume == ' '.join(command(folder))
  again = subprocess.run(resume, shell=True, capture_output=True, text=True, cwd=os.getcwd(), timeout=TIMEOUT)
  assert (again.returncode, again.stderr) == (0, '')
  assert summary(folder)['resumed_from_step'] == step
  assert_same_run(folder, uninterrupted)


def test_second_sigint_stops_immediately(tmp_path):
  """In a single round of a million steps, during which Python runs no signal handlers."""
  process = start(tmp_path, *(f'--config.{name}=1000000' for name in ('steps', 'period', 'first_period')))
  wait_until(lambda: (tmp_path / 'metrics.jsonl').exists(), process)
  time.sleep(1)
  process.send_signal(signal.SIGINT)
  time.sleep(0.2)
  assert process.poll() is None
  process.send_signal(signal.SIGINT)
  _, err = process.communicate(timeout=TIMEOUT)
  assert process.returncode == 130
  assert 'stopped without a new checkpoint' in one_line(err)


@pytest.mark.parametrize('signum', (signal.SIGTERM, signal.SIGINT))
def test_a_signal_before_the_first_step(signum, tmp_path):
  """While the initial weights are computed, which takes minutes here."""
  process = start(tmp_path / 'run', '--config.init_epochs=1e6')
  wait_until(lambda: (tmp_path / 'run' / '.lock').exists(), process)
  time.sleep(0.5)
  process.send_signal(signum)
  try:
    _, err = process.communicate(timeout=TIMEOUT)
  finally:
    process.kill()
  assert process.returncode == 128 + signum
  line = one_line(err)
  assert f'stopped by {signal.Signals(signum).name}; ' in line
  # On a busy machine it can still be compiling three seconds after the signal, and is then ended where it is.
  assert '; rerun the same command to resume' in line or ('; to resume: ' in line and not (tmp_path / 'run').exists())


def resumed_step(process):
  """The step from which a launch resumes, as soon as it has printed it."""
  for line in process.stdout:
    if found := re.search(r'from step (\d+)', line):
      return int(found[1])
  raise AssertionError(process.communicate())


def kill_repeatedly(workdir, kills, *flags, seed=0):
  """Kills a run at random times and then lets it finish; returns the steps from which it was resumed.

  In turn: while it trains, while it writes a checkpoint, while it starts.
  """
  rng, folder, resumed = random.Random(seed), workdir / 'checkpoints', []
  for number in range(kills):
    process = start(workdir, *flags)
    if number % 3 == 2:
      time.sleep(rng.uniform(0.0, 2.0))
    else:
      resumed.append(step := resumed_step(process))
      goal = step + 4 * rng.randint(1, 6)  # counted in rounds, so that a fast machine does not finish before the kill
      wait_until(lambda goal=goal: checkpoint_steps(workdir)[-1:] > [goal], process)
      time.sleep(rng.uniform(0.0, 0.02))
      if number % 3 == 1:
        wait_until(lambda: any('tmp' in path.name for path in folder.glob('*')), process)
    assert process.poll() is None, 'it finished before it could be killed'
    process.kill()
    _, err = process.communicate(timeout=TIMEOUT)
    assert err == ''
  process = start(workdir, *flags)
  resumed.append(resumed_step(process))
  _, err = process.communicate(timeout=TIMEOUT)
  assert (process.returncode, err) == (0, '')
  assert not any('tmp' in path.name for path in folder.glob('*'))
  return resumed


def test_killed_three_times(tmp_path):
  flags = ('--config.steps=600',)
  assert launch(tmp_path / 'uninterrupted', *flags)[0] == 0
  resumed = kill_repeatedly(tmp_path / 'run', 3, *flags)
  assert resumed[-1] > 0
  assert_same_run(tmp_path / 'run', tmp_path / 'uninterrupted')


@pytest.mark.slow
def test_killed_24_times(tmp_path):
  """SIGKILL at random times and during checkpoint writes; `pytest -s` shows the steps."""
  uninterrupted, killed = tmp_path / 'uninterrupted', tmp_path / 'killed'
  flags = ('--config.steps=2400',)
  assert launch(uninterrupted, *flags, '--config.compilation_cache=False')[0] == 0
  resumed = kill_repeatedly(killed, 24, *flags, seed=1)
  assert resumed == sorted(resumed)
  assert_same_run(killed, uninterrupted)
  resumes = sum(step > 0 for step in resumed)
  assert resumes == 16  # all but the first; the 8 that were killed while they started had not printed it yet
  print(f'kills: 24, resumes seen: {resumes} (from steps {resumed})')


def truncate(path):
  os.truncate(path, path.stat().st_size // 2)


def flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 0x10
  path.write_bytes(content)


def biggest(folder):
  return max((path for path in folder.rglob('*') if path.is_file()), key=lambda path: path.stat().st_size)


DAMAGE = {
  'all files truncated': lambda folder: [truncate(path) for path in folder.rglob('*') if path.is_file()],
  'data truncated': lambda folder: truncate(biggest(folder / 'state' / 'd')),
  'a bit of the data flipped': lambda folder: flip(biggest(folder / 'state' / 'd')),
  'no state': lambda folder: shutil.rmtree(folder / 'state'),
  'no manifest': lambda folder: (folder / 'state' / 'manifest.ocdbt').unlink(),
  'no metadata': lambda folder: shutil.rmtree(folder / 'about'),
  'a bit of the metadata flipped': lambda folder: flip(folder / 'about' / 'metadata'),
  'empty metadata': lambda folder: (folder / 'about' / 'metadata').write_text('{}'),
  'an empty directory': lambda folder: (shutil.rmtree(folder), folder.mkdir()),
  'a file in its place': lambda folder: (shutil.rmtree(folder), folder.write_text('?')),
}


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
  """A run stopped at step 21, in this process."""
  with signal_at(monkeypatch, 21), pytest.raises(Interrupted):
    train_and_evaluate(small_config(), tmp_path / 'run')
  return tmp_path / 'run'


@pytest.fixture(scope='module')
def small_run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('small')
  train_and_evaluate(small_config(), folder)
  return folder


@pytest.mark.parametrize('damage', DAMAGE)
def test_a_damaged_newest_checkpoint_falls_back_to_the_previous_one(damage, interrupted, small_run, capfd):
  assert checkpoint_steps(interrupted) == [13, 17, 21]
  DAMAGE[damage](interrupted / 'checkpoints' / '21')
  capfd.readouterr()
  assert train_and_evaluate(small_config(), interrupted)['resumed_from_step'] == 17
  line = one_line(capfd.readouterr().err)
  assert 'the checkpoint of step 21 cannot be read' in line
  assert 'resuming from step 17' in line
  assert (interrupted / 'unreadable_checkpoint_21').exists()
  assert_same_run(interrupted, small_run)


def test_a_deleted_newest_checkpoint_falls_back_to_the_previous_one(interrupted, small_run, capfd):
  shutil.rmtree(interrupted / 'checkpoints' / '21')
  assert train_and_evaluate(small_config(), interrupted)['resumed_from_step'] == 17
  assert 'from step 17' in capfd.readouterr().out
  assert_same_run(interrupted, small_run)


def test_all_checkpoints_damaged(interrupted, capfd):
  for step in checkpoint_steps(interrupted):
    DAMAGE['all files truncated'](interrupted / 'checkpoints' / str(step))
  before = contents(interrupted)
  with pytest.raises(
    DataError, match='step 21 cannot be read .*, nor can any other; move .*checkpoints away to start from step 0'
  ):
    train_and_evaluate(small_config(), interrupted)
  assert contents(interrupted) == before
  assert capfd.readouterr().err == ''


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda about: about['config'].update(seed=7), 'step 21 is from another run: seed=7 there and 0 now'),
    (
      lambda about: about['leaves'][0].__setitem__(2, [8, 6]),
      r'params: float32\[8, 6\] there and params: float32\[8, 5\]',
    ),
    (lambda about: about['leaves'].pop(), r'\d arrays there and \d now'),
  ],
)
def test_a_checkpoint_of_another_run_is_refused(change, message, interrupted):
  path = interrupted / 'checkpoints' / '21' / 'about' / 'metadata'
  about = json.loads(path.read_text())
  change(about)
  path.write_text(json.dumps(with_checksum(about)))
  before = contents(interrupted)
  with pytest.raises(DataError, match=message):
    train_and_evaluate(small_config(), interrupted)
  assert contents(interrupted) == before


def test_a_second_launch_in_the_same_directory_is_refused_until_the_first_has_ended(tmp_path):
  first = start(tmp_path, LONG)
  wait_until(lambda: checkpoint_steps(tmp_path), first)
  status, _, err = launch(tmp_path, LONG)
  assert status == 2
  assert 'another process is running in this directory' in one_line(err)
  first.kill()
  first.communicate(timeout=TIMEOUT)
  second = start(tmp_path, LONG)
  wait_until(lambda: 'from step' in (second.stdout.readline() or ''), second)
  second.kill()
  second.communicate(timeout=TIMEOUT)


@pytest.fixture
def small_disk(mounted):
  """A file system of 1 MB."""
  return mounted('size=1m')


def test_a_full_disk_ends_the_run_with_one_line(uninterrupted, small_disk):
  run = small_disk / 'run'
  process = start(run)
  wait_until(lambda: len(checkpoint_steps(run)) >= 2, process)
  ballast = small_disk / 'ballast'
  with open(ballast, 'wb', buffering=0) as file:
    try:
      while True:
        file.write(bytes(4096))
    except OSError:
      pass
  _, err = process.communicate(timeout=TIMEOUT)
  assert process.returncode == 5, err
  assert 'No space left on device' in one_line(err)
  ballast.unlink()
  status, _, err = launch(run)
  assert (status, err) == (0, '')
  assert summary(run)['resumed_from_step'] > 0
  assert_same_run(run, uninterrupted)


FAILING_RUNS = """
import sys
from vrl_jax import load_config, train_and_evaluate
from vrl_jax.engine import devices
from vrl_jax.errors import StorageError
devices.prepare_devices(4)
devices.use_compilation_cache()
for workdir in sys.argv[2:]:
  try:
    train_and_evaluate(load_config(sys.argv[1]), workdir)
  except StorageError as error:
    print(error, file=sys.stderr)
"""


def test_without_inodes_no_thread_keeps_a_script_alive(mounted):
  """Files that cannot be created; Orbax's threads waited 310 s for folders that could not be either."""
  runs = [str(mounted(f'size=50m,nr_inodes={inodes}') / 'run') for inodes in (10, 28, 30, 34)]
  environment = os.environ | {'VRL_JAX_CACHE': str(CACHE)}
  argv = [sys.executable, '-c', FAILING_RUNS, str(CONFIG), *runs]
  done = subprocess.run(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, timeout=250)
  assert done.returncode == 0, done.stderr
  lines = [line for line in done.stderr.splitlines() if line.startswith(tuple(runs))]  # Orbax logs more
  message = '{}/checkpoints: a checkpoint cannot be written (No space left on device); earlier checkpoints are intact'
  assert lines == [message.format(run) for run in runs]


def leave_an_exception_that_is_never_retrieved(message):
  loop = asyncio.new_event_loop()
  loop.create_future().set_exception(ValueError(message))
  gc.collect()  # asyncio logs it
  loop.close()


@pytest.mark.parametrize('error, logged', [('tensorstore_spec=…: No space left on device', 0), ('another error', 1)])
def test_secondary_errors_are_not_logged(caplog, error, logged):
  with orbax_errors.without_secondary_errors():
    leave_an_exception_that_is_never_retrieved(error)
  assert len(caplog.records) == logged


def test_the_command_logs_no_secondary_errors_after_the_run_either(tmp_path, monkeypatch, caplog, capfd):
  def run(*args):
    leave_an_exception_that_is_never_retrieved('tensorstore_spec=…: No space left on device')
    raise StorageError('the disk is full')

  monkeypatch.setattr(cli, 'run', run)
  assert cli.main(command(tmp_path)[1:]) == 5
  assert one_line(capfd.readouterr().err) == 'error: the disk is full'
  assert not caplog.records


def test_a_read_only_directory(small_disk):
  if subprocess.run(['mount', '-o', 'remount,ro', str(small_disk)], capture_output=True).returncode:
    pytest.skip('it cannot be mounted read-only')
  status, _, err = launch(small_disk / 'run')
  assert status == 2
  assert f'{small_disk}/run: cannot be written (Read-only file system)' in one_line(err)
  assert contents(small_disk) == {}
