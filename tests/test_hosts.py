"""Several real processes: the trajectory of one, orderly ends, refusals."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
import trajectories
from inprocess import compiled_once as compiled_once
from inprocess import signal_at, small_config
from launches import checkpoint_steps, launch, leaves, one_line, summary, wait_until
from several import PATIENCE, end_all, launch_all, start_all, wait_all

import vrl_jax
from vrl_jax import devices, hosts
from vrl_jax.agreement import disagreement
from vrl_jax.errors import UserError
from vrl_jax.joining import Cluster
from vrl_jax.signals import Interrupted
from vrl_jax.tools.local_hosts import difference, free_port
from vrl_jax.train import train_and_evaluate

HERE = pathlib.Path(__file__).parent
SHORT = ('--config.steps=40', '--config.devices=4')


def run_trajectories(number, local, folder, names):
  """{name: ([rounds, N, 7] models, [7] consensus)} of `number` processes with `local` devices each.

  Of the examples each process has only those of its own workers, which is as good as all.
  """
  file, port = folder / f'{number}.npz', free_port()
  common = [str(number), str(port), str(local), str(file), *names]
  environment = devices.untouched_environment()
  commands = [[sys.executable, str(HERE / 'trajectories.py'), str(process), *common] for process in range(number)]
  pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, 'env': environment}
  ends = wait_all([subprocess.Popen(command, **pipes) for command in commands], seconds=2 * PATIENCE)
  assert [status for status, _, _ in ends] == [0] * number, ends
  with np.load(file) as arrays:
    stream, resident, items = trajectories.stream(), arrays['fed a'], arrays['fed b']
    np.testing.assert_array_equal(resident, stream.partition.shards)
    expected = np.moveaxis(stream.global_indices(1, 4), 1, 0).reshape(8, 2, 2, trajectories.BATCH)
    np.testing.assert_array_equal(items, expected)
    return {name: (arrays[f'{name} a'], arrays[f'{name} b']) for name in names}


def same_trajectories(ours, theirs):
  for name, (models, consensus) in ours.items():
    assert np.abs(models).max() > 0.1
    np.testing.assert_allclose(models, theirs[name][0], rtol=1e-10, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(consensus, theirs[name][1], rtol=1e-10, atol=1e-12, err_msg=name)


def test_two_processes_have_the_trajectory_of_one(tmp_path):
  names = ('s_sgd', 'vrl_sgd')
  with jax.enable_x64(True):
    one = {name: trajectories.trajectory(name, 4) for name in names}
  same_trajectories(run_trajectories(2, 2, tmp_path, names), one)


@pytest.mark.slow
def test_every_algorithm_on_one_two_and_four_processes(tmp_path):
  """1 x 8, 2 x 4 and 4 x 2 devices."""
  names = tuple(vrl_jax.ALGORITHMS)
  one = run_trajectories(1, 8, tmp_path, names)
  for number in (2, 4):
    same_trajectories(run_trajectories(number, 8 // number, tmp_path, names), one)


def test_a_signal_to_one_stops_all(tmp_path):
  run = tmp_path / 'run'
  processes = start_all(2, run, '--config.steps=100000', '--config.devices=4')
  try:
    wait_until(lambda: len(checkpoint_steps(run)) >= 2, processes[0], PATIENCE)
    processes[1].send_signal(signal.SIGTERM)
    ends = wait_all(processes)
  finally:
    end_all(processes)
  step = checkpoint_steps(run)[-1]
  for number, (status, _, err) in enumerate(ends):
    assert status == 128 + signal.SIGTERM
    line = one_line(err)
    assert f'stopped by SIGTERM; it goes on from step {step} of 100000; to go on: ' in line
    assert line.endswith(f'--process_id={number}')
  assert summary(run)['status'] == 'interrupted'


def test_two_processes_go_on_with_what_one_has_begun(tmp_path, monkeypatch):
  whole, run = tmp_path / 'whole', tmp_path / 'run'
  train_and_evaluate(small_config(), whole)
  with signal_at(monkeypatch, 21), pytest.raises(Interrupted):
    train_and_evaluate(small_config(), run)
  out = launch_all(2, run, '--config.steps=40')
  assert 'vrl_sgd on quadratic: 8 workers on 4 cpu device(s), 40 steps in rounds of 4, from step 21' in out
  assert 'step 40, train_loss' in out
  assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in whole.iterdir())
  assert difference(run, whole) < 1e-5
  assert [leaf[:3] for leaf in leaves(run, 40)] == [leaf[:3] for leaf in leaves(whole, 40)]


def test_processes_that_differ_are_refused(tmp_path):
  """One of them has another seed and other data."""
  ends = wait_all(start_all(2, tmp_path / 'run', *SHORT, own={1: ('--config.seed=3', '--config.b=2.0')}))
  for status, _, err in ends:
    assert status == 2
    assert 'b=1.0 in process 0 and 2.0 in process 1; seed=0 in process 0 and 3 in process 1' in one_line(err)
  assert not (tmp_path / 'run').exists()


def test_a_coordinator_that_cannot_be_reached(tmp_path):
  address = f'127.0.0.1:{free_port()}'
  flags = (f'--coordinator_address={address}', '--num_processes=2', '--process_id=1', '--initialization_timeout=1')
  status, _, err = launch(tmp_path / 'run', *SHORT, *flags)
  assert status == 2
  assert f'process 1 of 2: the coordinator {address} cannot be reached after 1 s (Connection refused)' in one_line(err)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('fields', 'told'),
  [
    ({'num_processes': 2}, '--num_processes needs --coordinator_address, --process_id too'),
    ({'coordinator_address': 'here', 'num_processes': 2, 'process_id': 0}, 'must be HOST:PORT'),
    ({'coordinator_address': 'here:0', 'num_processes': 2, 'process_id': 0}, 'must be HOST:PORT'),
    ({'coordinator_address': 'a:1', 'num_processes': 2, 'process_id': 2}, 'numbered from 0'),
    ({'heartbeat_timeout_seconds': 0}, '--heartbeat_timeout_seconds=0, must be at least 1'),
  ],
)
def test_flags_that_cannot_be(fields, told):
  with pytest.raises(UserError, match=told):
    Cluster(**fields).check()


def test_a_port_that_is_taken(tmp_path):
  with socket.create_server(('', 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    address = f'127.0.0.1:{server.getsockname()[1]}'
    flags = (f'--coordinator_address={address}', '--num_processes=2', '--process_id=0')
    status, _, err = launch(tmp_path / 'run', *SHORT, *flags)
  assert status == 2
  assert f'process 0 of 2: cannot listen at {address} (Address already in use' in one_line(err)


def test_distributed_where_there_is_no_cluster(tmp_path):
  status, _, err = launch(tmp_path / 'run', *SHORT, '--distributed', env=os.environ | {'JAX_PLATFORMS': 'cpu'})
  assert status == 2
  assert '--distributed: JAX cannot find or join a cluster' in one_line(err)


def test_every_differing_field_is_named_with_the_first_process_that_differs():
  fields = [{'a': 1, 'b': [2]}, {'a': 1, 'b': [2]}, {'a': 5, 'b': [3]}, {'a': 6, 'b': [2], 'c': 'x'}]
  assert disagreement(fields) == (
    'a=1 in process 0 and 5 in process 2; b=[2] in process 0 and [3] in process 2; '
    "c=None in process 0 and 'x' in process 3"
  )
  assert disagreement(fields[:2]) == ''


def test_one_process_asks_nobody():
  flag = hosts.Flag()
  assert (hosts.count(), hosts.index(), hosts.is_main(), flag.seen()) == (1, 0, True, None)
  flag.raise_to(15)
  flag.raise_to(2)
  assert flag.seen() == 15
  assert hosts.from_main(lambda: (1, 'x')) == (1, 'x')
  assert hosts.collect(3) == [3]
