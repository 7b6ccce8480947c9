"""Islands in several processes, and islands that extend over several of them."""

import functools
import os
import pathlib
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
from support import islands
from support.multiprocess import TIMEOUT, wait_all

import vrl_jax
from vrl_jax.tools.local_hosts import free_port

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
