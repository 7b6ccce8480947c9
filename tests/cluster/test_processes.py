"""Several real processes: the same trajectory as one process, signals, refusals."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from support import trajectories
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at, small_config
from support.launches import checkpoint_steps, launch, leaves, one_line, summary, wait_until
from support.multiprocess import TIMEOUT, end_all, launch_all, start_all, wait_all

import vrl_jax
from vrl_jax.cluster import processes
from vrl_jax.cluster.consistency import disagreement
from vrl_jax.cluster.join import Cluster
from vrl_jax.errors import Interrupted, UserError
from vrl_jax.tools.local_hosts import difference, free_port
from vrl_jax.training.loop import train_and_evaluate

TESTS = pathlib.Path(__file__).parents[1]
SHORT = ('--config.steps=40', '--config.devices=4')


def run_trajectories(number, local, folder, names):
  """{name: ([rounds, N, 7] models, [7] consensus)} of `number` processes with `local` devices each.

  Each process has only the examples of its own workers.
  """
  file, port = folder / f'{number}.npz', free_port()
  common = [str(number), str(port), str(local), str(file), *names]
  environment = os.environ | {'PYTHONPATH': str(TESTS)}
  commands = [[sys.executable, '-m', 'support.trajectories', str(process), *common] for process in range(number)]
  pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, 'env': environment}
  ends = wait_all([subprocess.Popen(command, **pipes) for command in commands], seconds=2 * TIMEOUT)
  assert [status for status, _, _ in ends] == [0] * number, ends
  with np.load(file) as arrays:
    stream, resident, items = trajectories.stream(), arrays['fed a'], arrays['fed b']
    np.testing.assert_array_equal(resident, stream.partition.shards)
    expected = np.moveaxis(stream.global_indices(1, 4), 1, 0).reshape(8, 2, 2, trajectories.BATCH)
    np.testing.assert_array_equal(items, expected)
    return {name: (arrays[f'{name} a'], arrays[f'{name} b']) for name in names}


def assert_same_trajectories(ours, theirs):
  for name, (models, consensus) in ours.items():
    assert np.abs(models).max() > 0.1
    np.testing.assert_allclose(models, theirs[name][0], rtol=1e-10, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(consensus, theirs[name][1], rtol=1e-10, atol=1e-12, err_msg=name)


def test_two_processes_have_the_trajectory_of_one_process(tmp_path):
  names = ('s_sgd', 'vrl_sgd', 'vrl_sgd less')
  with jax.enable_x64(True):
    one = {name: trajectories.trajectory(name, 4) for name in names}
  assert_same_trajectories(run_trajectories(2, 2, tmp_path, names), one)


@pytest.mark.slow
def test_every_algorithm_on_one_two_and_four_processes(tmp_path):
  """1 x 8, 2 x 4 and 4 x 2 devices."""
  names = (*vrl_jax.ALGORITHMS, 'vrl_sgd less', 'scaffold less', 'diloco less')
  one = run_trajectories(1, 8, tmp_path, names)
  for number in (2, 4):
    assert_same_trajectories(run_trajectories(number, 8 // number, tmp_path, names), one)


def test_a_signal_to_one_process_stops_all(tmp_path):
  run = tmp_path / 'run'
  processes = start_all(2, run, '--config.steps=100000', '--config.devices=4')
  try:
    wait_until(lambda: len(checkpoint_steps(run)) >= 2, processes[0], TIMEOUT)
    processes[1].send_signal(signal.SIGTERM)
    ends = wait_all(processes)
  finally:
    end_all(processes)
  step = checkpoint_steps(run)[-1]
  for number, (status, _, err) in enumerate(ends):
    assert status == 128 + signal.SIGTERM
    line = one_line(err)
    assert f'stopped by SIGTERM; will resume from step {step} of 100000; to resume: ' in line
    assert line.endswith(f'--process_id={number}')
  assert summary(run)['status'] == 'interrupted'


def test_two_processes_resume_the_run_of_one(tmp_path, monkeypatch):
  uninterrupted, run = tmp_path / 'uninterrupted', tmp_path / 'run'
  train_and_evaluate(small_config(), uninterrupted)
  with signal_at(monkeypatch, 21), pytest.raises(Interrupted):
    train_and_evaluate(small_config(), run)
  out = launch_all(2, run, '--config.steps=40')
  assert 'vrl_sgd on quadratic: 8 workers on 4 cpu device(s), 40 steps in rounds of 4, from step 21' in out
  assert 'step 40, train_loss' in out
  assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in uninterrupted.iterdir())
  assert difference(run, uninterrupted) < 1e-5
  assert [leaf[:3] for leaf in leaves(run, 40)] == [leaf[:3] for leaf in leaves(uninterrupted, 40)]


def test_processes_with_different_configs_are_refused(tmp_path):
  """Process 1 has another seed and another b."""
  ends = wait_all(start_all(2, tmp_path / 'run', *SHORT, extra_flags={1: ('--config.seed=3', '--config.b=2.0')}))
  for status, _, err in ends:
    assert status == 2
    assert 'b=1.0 in process 0 and 2.0 in process 1; seed=0 in process 0 and 3 in process 1' in one_line(err)
  assert not (tmp_path / 'run').exists()


def test_an_unreachable_coordinator(tmp_path):
  address = f'127.0.0.1:{free_port()}'
  flags = (f'--coordinator_address={address}', '--num_processes=2', '--process_id=1', '--initialization_timeout=1')
  status, _, err = launch(tmp_path / 'run', *SHORT, *flags)
  assert status == 2
  assert f'process 1 of 2: the coordinator {address} cannot be reached after 1 s (Connection refused)' in one_line(err)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'num_processes': 2}, '--num_processes also needs --coordinator_address, --process_id'),
    ({'coordinator_address': 'here', 'num_processes': 2, 'process_id': 0}, 'must be HOST:PORT'),
    ({'coordinator_address': 'here:0', 'num_processes': 2, 'process_id': 0}, 'must be HOST:PORT'),
    ({'coordinator_address': 'a:1', 'num_processes': 2, 'process_id': 2}, r'must be in \[0, num_processes=2\)'),
    ({'heartbeat_timeout_seconds': 0}, '--heartbeat_timeout_seconds=0, must be at least 1'),
  ],
)
def test_invalid_cluster_flags(fields, message):
  with pytest.raises(UserError, match=message):
    Cluster(**fields).check()


def test_a_port_in_use(tmp_path):
  with socket.create_server(('', 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    address = f'127.0.0.1:{server.getsockname()[1]}'
    flags = (f'--coordinator_address={address}', '--num_processes=2', '--process_id=0')
    status, _, err = launch(tmp_path / 'run', *SHORT, *flags)
  assert status == 2
  assert f'process 0 of 2: cannot listen at {address} (Address already in use' in one_line(err)


def test_distributed_without_a_cluster(tmp_path):
  status, _, err = launch(tmp_path / 'run', *SHORT, '--distributed', env=os.environ | {'JAX_PLATFORMS': 'cpu'})
  assert status == 2
  assert '--distributed: JAX cannot find or join a cluster' in one_line(err)


def test_disagreement_names_every_field_and_the_first_process_that_differs():
  fields = [{'a': 1, 'b': [2]}, {'a': 1, 'b': [2]}, {'a': 5, 'b': [3]}, {'a': 6, 'b': [2], 'c': 'x'}]
  assert disagreement(fields) == (
    'a=1 in process 0 and 5 in process 2; b=[2] in process 0 and [3] in process 2; '
    "c=None in process 0 and 'x' in process 3"
  )
  assert disagreement(fields[:2]) == ''


def test_a_single_process_needs_no_coordinator():
  flag = processes.Flag()
  assert (processes.count(), processes.index(), processes.is_main(), flag.get()) == (1, 0, True, None)
  flag.set(15)
  flag.set(2)
  assert flag.get() == 15
  assert processes.from_main(lambda: (1, 'x')) == (1, 'x')
  assert processes.collect(3) == [3]
