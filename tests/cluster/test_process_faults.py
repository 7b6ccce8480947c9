"""Several real processes, one of which is killed, missing or different."""

import os
import re
import shutil
import signal
import struct
import time

import numpy as np
import pytest
from support.launches import ROOT, checkpoint_steps, leaves, lines, one_line, start, summary, wait_until
from support.multiprocess import TIMEOUT, child, cluster_flags, end_all, launch_all, start_all, wait_all

from vrl_jax.tools.local_hosts import difference

pytestmark = pytest.mark.slow
FLAGS = ('--config.steps=150', '--config.devices=4')


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
  """An uninterrupted run of two processes."""
  folder = tmp_path_factory.mktemp('uninterrupted') / 'run'
  launch_all(2, folder, *FLAGS)
  return folder


@pytest.mark.parametrize('index', [0, 1])
@pytest.mark.parametrize('killed_process', ['parent', 'child'])
def test_a_killed_process_ends_the_others_and_the_run_resumes(index, killed_process, uninterrupted, tmp_path):
  """With the default heartbeat the other process ends within a minute; rerun, both resume from the last checkpoint."""
  run = tmp_path / 'run'
  processes = start_all(2, run, *FLAGS, heartbeat=10)
  try:
    wait_until(lambda: len(checkpoint_steps(run)) >= 3, processes[0], TIMEOUT)
    os.kill(processes[index].pid if killed_process == 'parent' else child(processes[index]), signal.SIGKILL)
    killed = time.monotonic()
    status, _, err = wait_all([processes[1 - index]], seconds=60)[0]
    seconds = time.monotonic() - killed
    other = wait_all([processes[index]], seconds=60)[0]
  finally:
    end_all(processes)
  assert status == 6
  line = one_line(err)
  assert f'process {1 - index} of 2: lost contact to process {index}' in line
  assert 'restart all processes with the same commands' in line
  assert other[0] == (-signal.SIGKILL if killed_process == 'parent' else 128 + signal.SIGKILL)
  assert seconds < 60
  step = checkpoint_steps(run)[-1]
  assert f'from step {step}' in launch_all(2, run, *FLAGS)
  assert lines(run) == lines(uninterrupted)
  assert leaves(run, 150) == leaves(uninterrupted, 150)
  print(f'process {index} ({killed_process}) killed; the other ended after {seconds:.1f} s')


def test_a_missing_process_and_a_duplicate_process_id(tmp_path):
  """Of three processes, 0 is started once, 1 twice and 2 never."""
  flags = [*FLAGS, *cluster_flags(3), '--initialization_timeout=10']
  ends = wait_all([start(tmp_path / 'run', *flags, f'--process_id={i}') for i in (0, 1, 1)])
  assert [status for status, _, _ in ends] == [2, 2, 2]
  messages = [one_line(err) for _, _, err in ends]
  assert 'not all processes joined within 10 s' in messages[0]
  assert sum('another process has joined with the same --process_id' in line for line in messages[1:]) == 1
  assert not (tmp_path / 'run').exists()


def test_resume_with_another_number_of_processes(uninterrupted, tmp_path):
  """2 x 4 devices, then 1 x 8, then 4 x 2."""
  run, flags = tmp_path / 'run', ('--config.steps=150', '--config.devices=8')
  for number in (2, 1):
    before = len(checkpoint_steps(run)) and checkpoint_steps(run)[-1]
    processes = start_all(number, run, *flags)
    try:
      wait_until(lambda before=before: checkpoint_steps(run)[-1:] > [before + 20], processes[0], TIMEOUT)
      processes[0].send_signal(signal.SIGTERM)
      assert {status for status, _, _ in wait_all(processes)} == {143}
    finally:
      end_all(processes)
  out = launch_all(4, run, *flags)
  assert f'8 workers on 8 cpu device(s), 150 steps in rounds of 4, from step {summary(run)["resumed_from_step"]}' in out
  assert difference(run, uninterrupted) < 1e-5


def test_processes_with_different_code_are_refused(tmp_path):
  other = tmp_path / 'other'
  shutil.copytree(ROOT / 'vrl_jax', other / 'vrl_jax', ignore=shutil.ignore_patterns('__pycache__'))
  with open(other / 'vrl_jax' / 'engine' / 'engine.py', 'a') as file:
    file.write('# changed\n')
  shutil.copy(ROOT / 'launch.py', other)
  flags = (*FLAGS, *cluster_flags(2))
  elsewhere = {'cwd': other, 'env': os.environ | {'PYTHONPATH': str(other)}}
  processes = [start(tmp_path / 'run', *flags, '--process_id=0')]
  processes.append(start(tmp_path / 'run', *flags, '--process_id=1', **elsewhere))
  for status, _, err in wait_all(processes):
    assert status == 2
    assert re.search(r"do not agree: version of vrl_jax='(.*)' in process 0 and '(?!\1)", one_line(err)), err
  assert not (tmp_path / 'run').exists()


def write_idx(path, array):
  path.write_bytes(struct.pack(f'>HBB{array.ndim}I', 0, 8, array.ndim, *array.shape) + array.tobytes())


def write_digits(folder, size=80):
  folder.mkdir()
  rng = np.random.default_rng(0)
  for split in ('train', 't10k'):
    write_idx(folder / f'{split}-images-idx3-ubyte', rng.integers(0, 255, (size, 28, 28), dtype=np.uint8))
    write_idx(folder / f'{split}-labels-idx1-ubyte', (np.arange(size) % 10).astype(np.uint8))


def test_processes_with_different_data_are_refused(tmp_path):
  """The data directories may have different names but not different contents: here one pixel of a test image differs."""
  for name in ('here', 'there'):
    write_digits(tmp_path / name)
  with open(tmp_path / 'there' / 't10k-images-idx3-ubyte', 'r+b') as file:
    file.seek(1000)
    file.write(bytes([file.read(1)[0] ^ 1]))
  flags = ('--config.epochs=1', '--config.init_epochs=0', '--config.batch_size=2')
  extra_flags = {i: [f'--config.data_dir={tmp_path / name}'] for i, name in enumerate(('here', 'there'))}
  config = ROOT / 'configs' / 'lenet_mnist.py'
  for status, _, err in wait_all(start_all(2, tmp_path / 'run', *flags, extra_flags=extra_flags, config=config)):
    assert status == 2
    line = one_line(err)
    assert "do not agree: data test/input='float32[80, 32, 32] " in line
    assert line.count(' in process 0 and ') == 1
  assert not (tmp_path / 'run').exists()


def test_a_lenet_sweep_of_two_processes_has_the_losses_of_one(tmp_path):
  """Two algorithms, from initial weights that process 0 trains, with feed=host."""
  config = tmp_path / 'sweep.py'
  config.write_text(
    'from configs import lenet_mnist\n\n\ndef get_config():\n  config = lenet_mnist.get_config()\n'
    "  config.update(dataset='mnist_5k', devices=4, epochs=1.0, init_epochs=0.2, period=5, feed='host')\n"
    "  config.sweep = tuple({'name': name, 'algorithm': name} for name in ('vrl_sgd', 's_sgd'))\n"
    '  return config\n'
  )
  out = launch_all(2, tmp_path / 'two', config=config)
  assert '[2/2] s_sgd' in out and 'report: ' in out
  launch_all(1, tmp_path / 'one', config=config)
  for name in ('vrl_sgd', 's_sgd'):
    assert difference(tmp_path / 'two' / name, tmp_path / 'one' / name) < 1e-3


def test_a_run_directory_that_cannot_be_written_ends_both_processes(tmp_path):
  """There is a file in place of the checkpoints directory."""
  run = tmp_path / 'run'
  run.mkdir()
  (run / 'checkpoints').write_text('')
  ends = wait_all(start_all(2, run, *FLAGS))
  assert [status for status, _, _ in ends] == [5, 5]
  assert 'a checkpoint cannot be written' in one_line(ends[0][2])
  assert 'process 0 of 2 has ended: ' in one_line(ends[1][2])
