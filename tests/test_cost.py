"""The model of what communication costs: by hand, against a simulated ring, and its table."""

import math
import pathlib

import numpy as np
import pytest

from vrl_jax import cost
from vrl_jax.communication import Traffic
from vrl_jax.cost import Cluster
from vrl_jax.tools import cost as tool
from vrl_jax.tools import period as period_tool

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'scaling.md'
MEGABYTE = 1_000_000
SENDS_THE_MODEL = Traffic(per_step=0, per_round=MEGABYTE)
SENDS_GRADIENTS = Traffic(per_step=MEGABYTE, per_round=0)


def _simulated_ring(payload, cluster):
  """Passes the chunks of a real sum around a ring and adds up the time of the slowest sender of every turn."""
  d = cluster.devices
  values = np.arange(d * d, dtype=float).reshape(d, d)  # one number a chunk
  expected, seconds = values.sum(0), 0.0
  for turn in range(2 * (d - 1)):
    chunk = [(i - turn) % d for i in range(d)] if turn < d - 1 else [(i + 1 - (turn - d + 1)) % d for i in range(d)]
    sent = [values[i, chunk[i]] for i in range(d)]
    for i in range(d):
      old = values[(i + 1) % d, chunk[i]] if turn < d - 1 else 0.0
      values[(i + 1) % d, chunk[i]] = old + sent[i]
    seconds += cluster.latency + payload / d * cluster.overhead / (cluster.bandwidth / 8)
  np.testing.assert_array_equal(values, np.tile(expected, (d, 1)))
  return seconds


@pytest.mark.parametrize('devices', [2, 3, 4, 8, 33])
def test_the_ring_is_what_a_ring_takes(devices):
  cluster = Cluster(workers=devices, devices=devices, bandwidth=1e8, latency=1e-3, overhead=1.05)
  assert cost.ring_seconds(MEGABYTE, cluster) == pytest.approx(_simulated_ring(MEGABYTE, cluster), rel=1e-12)


def test_by_hand():
  # 8 Mbit/s are 1 MB/s. The MLP at 100 Mbit/s between two hosts: 9.2 MB/12.5 MB/s.
  assert cost.ring_seconds(9.2e6, Cluster(8, 2, 1e8)) == pytest.approx(0.736)
  # 5 devices: a tree is 3 deep; up and down 6 times (1 s + 10 ms).
  assert cost.tree_seconds(MEGABYTE, Cluster(5, 5, 8e6, latency=0.01)) == pytest.approx(6.06)
  # 2 workers a device, 0.1 s each; 1.5 s for the ring of 4; 4 steps.
  slow = Cluster(8, 4, 8e6)
  assert cost.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow) == pytest.approx(4 * 0.2 + 1.5)
  assert cost.round_seconds(SENDS_GRADIENTS, 4, 0.1, slow) == pytest.approx(4 * (0.2 + 1.5))
  assert cost.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow, overlapped=True) == pytest.approx(1.5)
  assert cost.round_seconds(SENDS_THE_MODEL, 10, 0.1, slow, overlapped=True) == pytest.approx(2.0)
  assert cost.round_seconds(SENDS_THE_MODEL, 4, 0.1, slow, all_reduce=cost.tree_seconds) == pytest.approx(0.8 + 4)
  gossip = Traffic(per_step=0, per_round=0, to_neighbours=2 * MEGABYTE)
  assert cost.round_seconds(gossip, 4, 0.1, slow) == pytest.approx(4 * (0.2 + 2))


def test_one_device_communicates_with_nobody():
  alone = Cluster(8, 1, 1e3)
  for traffic in (SENDS_THE_MODEL, SENDS_GRADIENTS, Traffic(0, 0, to_neighbours=MEGABYTE)):
    assert cost.round_seconds(traffic, 5, 0.1, alone) == pytest.approx(5 * 8 * 0.1)


def test_steps_are_rounds_and_a_rest():
  slow = Cluster(8, 4, 8e6)
  rounds = [10, 10, 5]
  by_rounds = sum(cost.round_seconds(SENDS_THE_MODEL, k, 0.1, slow) for k in rounds)
  assert cost.steps_seconds(25, SENDS_THE_MODEL, 10, 0.1, slow) == pytest.approx(by_rounds)
  # k = 1 costs what S-SGD costs
  sends_gradients = cost.steps_seconds(25, SENDS_GRADIENTS, 10, 0.1, slow)
  assert cost.steps_seconds(25, SENDS_THE_MODEL, 1, 0.1, slow) == pytest.approx(sends_gradients)


@pytest.mark.parametrize('share', [0.01, 0.1, 0.5, 0.9])
def test_period_for_share_is_the_shortest(share):
  of_time = lambda k: 1.5 / (0.2 * k + 1.5)
  k = cost.period_for_share(share, 0.2, 1.5)
  assert of_time(k) <= share + 1e-9
  assert k == 1 or of_time(k - 1) > share


def test_workers_must_fit_the_devices():
  with pytest.raises(ValueError, match='8 workers cannot be divided over 3 devices'):
    cost.round_seconds(SENDS_THE_MODEL, 4, 0.1, Cluster(8, 3, 8e6))


def test_table_has_a_row_for_every_setting(capsys):
  assert tool.main(['--workers', '8', '64', '--parameters', '1e6', '1e9', '--steps', '1e6', '--latency', '0']) == 0
  head, titles, *rows, _, _, foot = capsys.readouterr().out.splitlines()
  assert 'T = 1,000,000' in head and titles.split()[:2] == ['N', 'P']
  assert [row.split()[:3] for row in rows] == [['8', '1', 'M'], ['8', '1', 'G'], ['64', '1', 'M'], ['64', '1', 'G']]
  # 8 workers, 1 G: T^½/N^1.5 = 44.2, T^¼/N^¾ = 6.6; step 6·1e9·4096/1e14; ring 2·7/8·4e9·8·1514/1448/1e10
  step, ring = 0.24576, 2 * 7 / 8 * 3.2 * 1514 / 1448
  shown = [f'{1 + ring / step:.2f}', f'k = 6: {1 + ring / step / 6:.2f}', f'k = 44: {1 + ring / step / 44:.2f}']
  for cell in (*shown, f'{1 + ring / step / 20:.2f}', f'{math.ceil(9 * ring / step)}'):
    assert cell in rows[1]
  assert 'N ≤ 39 for Local SGD, 62 for VRL-SGD' in foot


@pytest.mark.parametrize('main, flags', [(tool.main, []), (period_tool.main, ['--steps=100'])])
@pytest.mark.parametrize('value', ['0', '-3', 'many', 'nan', '2.5'])
def test_bad_numbers_are_told_in_a_line(main, flags, value, capsys):
  with pytest.raises(SystemExit) as exit:
    main([*flags, f'--workers={value}'])
  assert exit.value.code == 2
  assert f"'{value}', must be a whole number of at least 1" in capsys.readouterr().err


def test_the_page_shows_the_table(capsys):
  tool.main([])
  assert f'$ python -m vrl_jax.tools.cost\n{capsys.readouterr().out}```' in PAGE.read_text()
