"""How many devices a run uses, by the workers and the devices that there are."""

import pytest

from vrl_jax.engine.device_counts import device_counts
from vrl_jax.errors import UserError


@pytest.mark.parametrize(
  ('workers', 'available', 'options', 'expected'),
  [
    (8, 8, {}, (8, 1)),
    (2, 8, {}, (8, 4)),
    (2, 8, {'batch_size': 6}, (6, 3)),  # 4 does not divide the batch
    (3, 8, {}, (6, 2)),
    (6, 8, {}, (6, 1)),
    (7, 4, {}, (4, 4)),  # seven workers on one island of four
    (2, 8, {'devices': 2}, (2, 1)),  # the choice of the user
    (2, 8, {'devices_per_worker': 1}, (2, 1)),
    (2, 8, {'devices_per_worker': 2}, (4, 2)),
    (8, 8, {'devices_per_worker': 4}, (8, 4)),
    (8, 8, {'devices_per_worker': 8}, (8, 8)),
    (8, 8, {'devices_per_worker': 3}, (6, 3)),
    (2, 4, {'processes': 2}, (8, 4)),  # an island is one process's devices
    (8, 4, {'processes': 2}, (8, 1)),
    (1, 4, {'processes': 2, 'devices_per_worker': 8}, (8, 8)),  # an island of two processes
    (2, 4, {'processes': 4, 'devices_per_worker': 8}, (16, 8)),
  ],
)
def test_on_accelerators_islands_are_as_large_as_the_devices_allow(workers, available, options, expected):
  assert device_counts(workers, available, platform='gpu', **options) == expected


def test_on_cpu_a_worker_has_one_device_unless_the_user_chooses():
  assert device_counts(2, 8, platform='cpu') == (2, 1)
  assert device_counts(2, 8, platform='cpu', devices_per_worker=4) == (8, 4)


@pytest.mark.parametrize(
  ('workers', 'available', 'options', 'message'),
  [
    (
      4,
      8,
      {'devices': 8, 'devices_per_worker': 1},
      'workers=4 cannot be divided over devices=8: choose a divisor of 4',
    ),
    (2, 4, {'devices': 6, 'processes': 2, 'devices_per_worker': 2}, 'over devices=6 of 2 processes in islands of'),
    (3, 4, {'devices': 6, 'processes': 2, 'devices_per_worker': 2}, 'over devices=6 of 2 processes in islands of'),
    (1, 2, {'devices_per_worker': 8}, 'devices_per_worker=8 does not fit: JAX has 2 device'),
    (2, 8, {'devices_per_worker': 3, 'batch_size': 32}, 'batch_size=32 cannot be divided over devices_per_worker=3'),
    (3, 4, {'processes': 2}, 'workers=3 cannot be divided over 2 processes'),
  ],
)
def test_counts_that_do_not_fit_are_refused(workers, available, options, message):
  with pytest.raises(UserError, match=message):
    device_counts(workers, available, platform='gpu', **options)
