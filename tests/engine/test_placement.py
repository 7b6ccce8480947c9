"""The placement of workers on devices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrl_jax.engine.placement import first_copy, place_workers
from vrl_jax.errors import UserError


def test_split_keeps_the_order_of_the_workers():
  for devices in (8, 4, 2, 1):
    placement = place_workers(8, devices)
    split = placement.split(np.arange(16).reshape(8, 2))
    assert split.shape == (devices, 8 // devices, 2)
    np.testing.assert_array_equal(np.asarray(split).reshape(8, 2), np.arange(16).reshape(8, 2))
    assert [shard.device for shard in split.addressable_shards] == list(placement.devices)
    copies = placement.replicate({'a': np.arange(3)})['a']
    np.testing.assert_array_equal(copies, np.tile(np.arange(3), (devices, 1)))
    np.testing.assert_array_equal(first_copy(copies), np.arange(3))
    assert placement.workers == 8


def test_the_number_of_devices_divides_the_workers():
  assert [len(place_workers(workers).devices) for workers in (1, 2, 6, 8, 12, 16, 7, 11)] == [1, 2, 6, 8, 6, 8, 7, 1]


@pytest.mark.parametrize(
  ('workers', 'devices', 'message'),
  [(8, 3, 'workers=8 cannot be divided over devices=3'), (8, 0, 'devices=0'), (32, 16, 'devices=16, but JAX has 8')],
)
def test_workers_and_devices_that_do_not_fit_are_refused(workers, devices, message):
  with pytest.raises(UserError, match=message):
    place_workers(workers, devices)


def test_a_mapped_function_is_called_and_lowered_with_global_arrays():
  placement = place_workers(8, 2)
  program = placement.pmap(lambda x: jnp.sum(x, axis=0))
  x = placement.split(np.arange(8.0, dtype=np.float32))
  np.testing.assert_array_equal(program(x), [6.0, 22.0])
  np.testing.assert_array_equal(program.lower(x).compile()(x), [6.0, 22.0])


def test_placements_are_equal_by_their_workers_and_devices():
  assert place_workers(8, 2) == place_workers(8, 2) != place_workers(8, 4)
  assert len({place_workers(8, 2), place_workers(8, 2)}) == 1
  with pytest.raises(dataclasses.FrozenInstanceError):
    place_workers(8, 2).devices = tuple(jax.devices())
