"""The parts of a state on several devices and processes, and their checksums."""

import jax
import numpy as np
import pytest

from vrl_jax.cluster import processes
from vrl_jax.engine.placement import place_workers
from vrl_jax.training import parts
from vrl_jax.training.checkpoint import to_host
from vrl_jax.training.restore import describe_leaves

STATE = {
  'matrix': np.random.default_rng(0).normal(size=(8, 6, 4)).astype(np.float32),
  'vector': np.arange(24.0, dtype=np.float32).reshape(8, 3),
  'step': np.arange(8, dtype=np.int32),
}


@pytest.mark.parametrize(('devices', 'size', 'mode'), [(8, 1, 'replicated'), (8, 4, 'sharded'), (4, 2, 'replicated')])
def test_rows_are_the_state_of_all_workers_and_back(devices, size, mode):
  placement = place_workers(8, devices, devices_per_worker=size, island=mode)
  state = placement.split(STATE, placement.state_sharding)
  rows = parts.rows(state, placement)
  jax.tree.map(np.testing.assert_array_equal, rows, STATE)
  shapes = parts.row_shapes(STATE, placement)
  assert all(x.sharding.is_equivalent_to(s.sharding, x.ndim) for x, s in zip(*map(jax.tree.leaves, (rows, shapes))))
  back = parts.from_rows(rows, placement)
  assert jax.tree.all(jax.tree.map(lambda a, b: a.sharding.is_equivalent_to(b.sharding, a.ndim), back, state))
  jax.tree.map(np.testing.assert_array_equal, to_host(back), STATE)
  assert parts.checksums(rows) == [leaf[3] for leaf in describe_leaves(STATE, checksums=True)]
  jax.tree.map(lambda x: x.delete(), state)  # as a program that donates it
  jax.tree.map(np.testing.assert_array_equal, rows, STATE)


@pytest.mark.parametrize('number', [1, 2, 3, 4])
def test_checksums_of_several_processes_are_those_of_the_whole(number, monkeypatch):
  """Each has two rows of a half of the matrix, or nothing."""
  x = STATE['matrix'][: 2 * number]

  def own_of(process):
    rows = slice(2 * process, 2 * process + 2)
    return [((rows, slice(0, 3)), x[rows, :3]), ((rows, slice(3, 6)), x[rows, 3:])]

  others = [[parts._checksum(x, own_of(process))] for process in range(number)]
  monkeypatch.setattr(processes, 'collect', lambda own: others)
  assert parts.checksums([x]) == [describe_leaves([x], checksums=True)[0][3]]


def test_numbers_that_are_not_finite_are_found_in_every_part():
  placement = place_workers(8, 8, devices_per_worker=4, island='sharded')
  for row, column in ((0, 0), (7, 5)):
    matrix = STATE['matrix'].copy()
    matrix[row, column, 1] = np.nan
    state = placement.split({'matrix': matrix}, placement.state_sharding)
    assert not parts.are_finite(state)
  assert parts.are_finite(placement.split(STATE, placement.state_sharding))
