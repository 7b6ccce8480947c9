"""The cost model of communication: by hand, and against a simulated ring."""

import numpy as np
import pytest

from vrl_jax.accounting import cost_model
from vrl_jax.accounting.cost_model import Network
from vrl_jax.accounting.traffic import Traffic

MEGABYTE = 1_000_000
SENDS_THE_MODEL = Traffic(per_step=0, per_round=MEGABYTE)
SENDS_GRADIENTS = Traffic(per_step=MEGABYTE, per_round=0)


def _simulated_ring(payload, network):
  """Computes a sum chunk by chunk around a ring, and returns the total of the slowest sender's time in every turn."""
  d = network.devices
  values = np.arange(d * d, dtype=float).reshape(d, d)  # one number per chunk
  expected, seconds = values.sum(0), 0.0
  for turn in range(2 * (d - 1)):
    chunk = [(i - turn) % d for i in range(d)] if turn < d - 1 else [(i + 1 - (turn - d + 1)) % d for i in range(d)]
    sent = [values[i, chunk[i]] for i in range(d)]
    for i in range(d):
      old = values[(i + 1) % d, chunk[i]] if turn < d - 1 else 0.0
      values[(i + 1) % d, chunk[i]] = old + sent[i]
    seconds += network.latency + payload / d * network.overhead / (network.bandwidth / 8)
  np.testing.assert_array_equal(values, np.tile(expected, (d, 1)))
  return seconds


@pytest.mark.parametrize('devices', [2, 3, 4, 8, 33])
def test_ring_seconds_equal_a_simulated_ring(devices):
  network = Network(workers=devices, devices=devices, bandwidth=1e8, latency=1e-3, overhead=1.05)
  assert cost_model.ring_seconds(MEGABYTE, network) == pytest.approx(_simulated_ring(MEGABYTE, network), rel=1e-12)


def test_by_hand():
  # 8 Mbit/s are 1 MB/s. The MLP at 100 Mbit/s between two hosts: 9.2 MB/12.5 MB/s.
  assert cost_model.ring_seconds(9.2e6, Network(8, 2, 1e8)) == pytest.approx(0.736)
  # 5 devices: a tree is 3 deep; up and down 6 times (1 s + 10 ms).
  assert cost_model.tree_seconds(MEGABYTE, Network(5, 5, 8e6, latency=0.01)) == pytest.approx(6.06)
  # 2 workers per device, 0.1 s each; 1.5 s for the ring of 4; 4 steps.
  slow = Network(8, 4, 8e6)
  assert cost_model.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow) == pytest.approx(4 * 0.2 + 1.5)
  assert cost_model.round_seconds(SENDS_GRADIENTS, 4, 0.1, slow) == pytest.approx(4 * (0.2 + 1.5))
  assert cost_model.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow, delay=4) == pytest.approx(1.5)
  assert cost_model.round_seconds(SENDS_THE_MODEL, 10, 0.1, slow, delay=10) == pytest.approx(2.0)
  # 4 fragments of 250 kB take 0.375 s each; one step of 0.2 s hides 0.2 s of it. In 4 bits they take less than a step.
  assert cost_model.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow, fragments=4, delay=1) == pytest.approx(0.8 + 4 * 0.175)
  in_4_bits = Traffic(per_step=0, per_round=MEGABYTE // 8)
  assert cost_model.round_seconds(in_4_bits, 4, 0.1, slow, fragments=4, delay=1) == pytest.approx(0.8)
  # A fragment's transfer ends when the next one starts, whatever the delay.
  assert cost_model.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow, fragments=4, delay=9) == pytest.approx(0.8 + 4 * 0.175)
  assert cost_model.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow, all_reduce=cost_model.tree_seconds) == pytest.approx(
    0.8 + 4
  )
  gossip = Traffic(per_step=0, per_round=0, to_neighbours=2 * MEGABYTE)
  assert cost_model.round_seconds(gossip, 4, 0.1, slow) == pytest.approx(4 * (0.2 + 2))


def test_one_device_does_not_communicate():
  alone = Network(8, 1, 1e3)
  for traffic in (SENDS_THE_MODEL, SENDS_GRADIENTS, Traffic(0, 0, to_neighbours=MEGABYTE)):
    assert cost_model.round_seconds(traffic, 5, 0.1, alone) == pytest.approx(5 * 8 * 0.1)


def test_steps_seconds_are_full_rounds_and_a_shorter_one():
  slow = Network(8, 4, 8e6)
  rounds = [10, 10, 5]
  by_rounds = sum(cost_model.round_seconds(SENDS_THE_MODEL, k, 0.1, slow) for k in rounds)
  assert cost_model.steps_seconds(25, SENDS_THE_MODEL, 10, 0.1, slow) == pytest.approx(by_rounds)
  # k = 1 costs as much as S-SGD
  sends_gradients = cost_model.steps_seconds(25, SENDS_GRADIENTS, 10, 0.1, slow)
  assert cost_model.steps_seconds(25, SENDS_THE_MODEL, 1, 0.1, slow) == pytest.approx(sends_gradients)


@pytest.mark.parametrize('share', [0.01, 0.1, 0.5, 0.9])
def test_period_for_share_is_the_shortest(share):
  of_time = lambda k: 1.5 / (0.2 * k + 1.5)
  k = cost_model.period_for_share(share, 0.2, 1.5)
  assert of_time(k) <= share + 1e-9
  assert k == 1 or of_time(k - 1) > share


def test_workers_must_be_divisible_by_devices():
  with pytest.raises(ValueError, match='8 workers cannot be divided over 3 devices'):
    cost_model.round_seconds(SENDS_THE_MODEL, 4, 0.1, Network(8, 3, 8e6))
