"""Islands in several processes, islands that extend over several of them, and checkpoints that all processes write."""

import functools
import os
import pathlib
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
from support import four_classes, islands
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import ROOT, checkpoint_steps, leaves, one_line, start, summary
from support.multiprocess import TIMEOUT, cluster_flags, launch_all, start_all, wait_all

import vrl_jax
from vrl_jax.errors import Interrupted
from vrl_jax.tools.local_hosts import difference, free_port
from vrl_jax.training.consensus import consensus_model
from vrl_jax.training.loop import train_and_evaluate

TESTS = pathlib.Path(__file__).parents[1]


def run_processes(number, local, size, mode, names, folder):
  """The trajectories, by algorithm, of `number` processes with `local` devices each."""
  file = folder / 'trajectories'
  common = [str(number), str(free_port()), str(local), str(file), str(size), mode, *names]
  environment = os.environ | {'PYTHONPATH': str(TESTS)}
  pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, 'env': environment}
  ends = wait_all(
    [subprocess.Popen([sys.executable, '-m', 'support.islands', str(i), *common], **pipes) for i in range(number)],
    seconds=2 * TIMEOUT,
  )
  assert [status for status, _, _ in ends] == [0] * number, ends
  return pickle.loads(file.read_bytes())


@functools.cache
def one_process(name):
  with jax.enable_x64(True):
    return islands.trajectory(name, 2, 1)


def assert_same(found):
  for name, trajectory in found.items():
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12, err_msg=name)
    jax.tree.map(close, trajectory, one_process(name))


@pytest.mark.slow
def test_two_processes_with_two_islands_each(tmp_path):
  assert_same(run_processes(2, 4, 2, 'sharded', ['vrl_sgd'], tmp_path))


def test_an_island_of_two_processes(tmp_path):
  assert_same(run_processes(2, 2, 4, 'sharded', ['vrl_sgd'], tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize('mode', ['replicated', 'sharded'])
@pytest.mark.parametrize(
  ('number', 'local', 'size'),
  [(2, 2, 2), (2, 4, 2), (2, 4, 4), (2, 1, 2), (2, 2, 4), (2, 4, 8), (4, 2, 4)],
  ids=lambda n: str(n),
)
def test_every_algorithm(number, local, size, mode, tmp_path):
  """The last four have islands of two processes."""
  assert_same(run_processes(number, local, size, mode, list(vrl_jax.ALGORITHMS), tmp_path))


CONFIG = pathlib.Path(four_classes.__file__)
ISLANDS = ('--config.devices=8', '--config.devices_per_worker=4', '--config.island=sharded')


def train(folder, **fields):
  config = four_classes.get_config()
  config.update(fields)
  train_and_evaluate(config, folder)


@pytest.fixture(scope='module')
def in_one_process(tmp_path_factory):
  """A run without islands."""
  folder = tmp_path_factory.mktemp('one_process') / 'run'
  train(folder, devices=2)
  return folder


def written_by(run, step):
  """The processes that have written a checkpoint."""
  return {path.name for path in (run / 'checkpoints' / str(step) / 'state').glob('ocdbt.process_*')}


def test_two_processes_resume_on_other_islands_and_write_together(in_one_process, tmp_path, monkeypatch):
  """From 4 islands of 2 in one process to 2 islands of 4 in two; then one process reads what both have written."""
  run = tmp_path / 'run'
  with signal_at(monkeypatch, 12), pytest.raises(Interrupted):
    train(run, devices=8, devices_per_worker=2, island='sharded')
  out = launch_all(2, run, *ISLANDS, config=CONFIG)
  assert '4 workers on 8 cpu device(s) in islands of 4 (sharded), 24 steps in rounds of 4, from step 12' in out
  assert written_by(run, 24) == {'ocdbt.process_0', 'ocdbt.process_1'}
  assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in in_one_process.iterdir())
  assert difference(run, in_one_process) < 1e-4
  assert [leaf[:3] for leaf in leaves(run, 24)] == [leaf[:3] for leaf in leaves(in_one_process, 24)]
  ours, theirs = consensus_model(run), consensus_model(in_one_process)  # verifies the checksums
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), ours, theirs)


@pytest.mark.slow
def test_an_island_of_two_processes_trains_and_resumes(in_one_process, tmp_path, monkeypatch):
  """In the second run each process has one half of an island, and reads and writes it."""
  run, flags = tmp_path / 'run', ('--config.devices=4', '--config.devices_per_worker=4', '--config.island=sharded')
  with signal_at(monkeypatch, 12), pytest.raises(Interrupted):
    train(run, devices=2)
  launch_all(2, run, *flags, config=CONFIG)
  assert summary(run)['resumed_from_step'] == 12
  assert difference(run, in_one_process) < 1e-4
  consensus_model(run)


@pytest.mark.slow
def test_without_a_common_directory_process_0_writes_alone(in_one_process, tmp_path):
  """The same relative path is another directory for process 1, as on a host without a common file system."""
  flags = (*ISLANDS, *cluster_flags(2))
  here, there = (tmp_path / name for name in ('here', 'there'))
  processes = []
  for index, folder in enumerate((here, there)):
    folder.mkdir()
    elsewhere = {'cwd': folder, 'program': (str(ROOT / 'launch.py'),), 'config': CONFIG}
    processes.append(start('run', *flags, f'--process_id={index}', **elsewhere))
  assert [end[0] for end in wait_all(processes)] == [0, 0]
  assert written_by(here / 'run', 24) == {'ocdbt.process_0'} and not list(there.iterdir())
  assert difference(here / 'run', in_one_process) < 1e-4


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_by_all_processes(tmp_path):
  run = tmp_path / 'run'
  launch_all(2, run, *ISLANDS, '--config.steps=12', config=CONFIG)
  whole = {step: leaves(run, step) for step in checkpoint_steps(run)}
  (run / 'summary.json').unlink()
  for file in (run / 'checkpoints' / '12' / 'state' / 'd').iterdir():
    file.write_bytes(bytes(file.stat().st_size))
  (status, _, err), (other, _, quiet) = wait_all(start_all(2, run, *ISLANDS, '--config.steps=12', config=CONFIG))
  assert (status, other, quiet) == (0, 0, '')
  assert 'the checkpoint of step 12 cannot be read' in one_line(err) and 'resuming from step 8' in err
  assert leaves(run, 12) == whole[12]
