r"""What communication costs in time: a model of the step, the round and the epoch, for networks that are not at hand.

N workers run on D devices that are joined by a network on which each can send B bits a second, and where a message
takes :math:`\alpha` seconds however short it is. The workers of a device take their steps one after the other and are
summed before anything is sent, so M bytes of parameters are M bytes to send whatever N is:

.. math::

  \text{step} = \frac{N}{D} t, \qquad
  \text{ring} = 2 (D - 1) \Big(\alpha + \frac{8 h M}{D B}\Big), \qquad
  \text{tree} = 2 \lceil \log_2 D \rceil \Big(\alpha + \frac{8 h M}{B}\Big), \qquad
  \text{round} = k \, \text{step} + \text{all-reduces} .

t is the time of one worker's step and h the bytes on the wire for a byte of payload. The ring sends 2(D−1)/D of the
payload from each device, the least that is possible, in 2(D−1) messages; the tree (a reduction to one device and a
broadcast from it) needs few messages and is the faster one where the latency counts. gloo's all-reduce, which JAX uses
between CPUs, is the ring. `docs/scaling.md` has the model's error against measured times.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from vrl_jax.communication import Traffic

TCP_OVERHEAD = 1514 / 1448
"""h of TCP over Ethernet: 1,448 bytes of payload in a frame of 1,514, with IPv4 and TCP's time stamps."""


class Cluster(NamedTuple):
  """Where a run takes place.

  Attributes:
    workers: N.
    devices: D, what the all-reduce goes around. Hosts with several devices each are a ring of all their devices whose
      edges between the hosts carry as much as every other edge.
    bandwidth: B, in bits a second, of each device's link (of each host's, where devices share one).
    latency: α, in seconds for each message.
    overhead: h, the bytes on the wire for a byte of payload.

  >>> laptop = Cluster(workers=8, devices=2, bandwidth=1e9, latency=1e-4)
  >>> laptop.workers // laptop.devices  # workers that take their steps one after the other
  4
  """

  workers: int
  devices: int
  bandwidth: float
  latency: float = 0.0
  overhead: float = 1.0


def ring_seconds(payload: float, cluster: Cluster) -> float:
  """The time of a ring all-reduce of `payload` bytes: 2(D−1)(α + 8hM/(DB)).

  >>> ring_seconds(1_000_000, Cluster(workers=8, devices=4, bandwidth=8e6, latency=0.01))  # 6 (0.01 + 0.25)
  1.56
  """
  share = cluster.overhead * payload * 8 / (cluster.devices * cluster.bandwidth)
  return 2 * (cluster.devices - 1) * (cluster.latency + share)


def tree_seconds(payload: float, cluster: Cluster) -> float:
  """The time of a reduction along a binary tree and a broadcast back: 2⌈log₂D⌉(α + 8hM/B).

  >>> tree_seconds(1_000_000, Cluster(workers=8, devices=4, bandwidth=8e6, latency=0.01))  # 4 (0.01 + 1)
  4.04
  """
  depth = math.ceil(math.log2(cluster.devices))
  return 2 * depth * (cluster.latency + cluster.overhead * payload * 8 / cluster.bandwidth)


ALL_REDUCES: dict[str, Callable[[float, Cluster], float]] = {'ring': ring_seconds, 'tree': tree_seconds}


def fastest_all_reduce(payload: float, cluster: Cluster) -> tuple[str, float]:
  """The faster of the ring and the tree, and its time.

  >>> many = Cluster(workers=1024, devices=1024, bandwidth=10e9, latency=50e-6)
  >>> fastest_all_reduce(4e3, many)[0], fastest_all_reduce(4e9, many)[0]
  ('tree', 'ring')
  """
  return min(((name, seconds(payload, cluster)) for name, seconds in ALL_REDUCES.items()), key=lambda pair: pair[1])


def round_seconds(
  traffic: Traffic,
  period: int,
  step_seconds: float,
  cluster: Cluster,
  *,
  all_reduce: Callable[[float, Cluster], float] = ring_seconds,
  overlapped: bool = False,
) -> float:
  """The time of a round of `period` steps.

  Args:
    traffic: what the algorithm sends in a step and in a round (`communication.traffic`).
    period: k.
    step_seconds: t, of one worker's step on a device of its own, without communication.
    cluster: the workers, the devices and their network.
    all_reduce: `ring_seconds` or `tree_seconds`.
    overlapped: whether the round's all-reduce runs beside its steps, as CoCoD-SGD's can.

  Returns:
    Seconds.

  VRL-SGD with 1 MB of parameters, a round of 10 steps of 0.1 s on 4 devices with 2 workers each, at 8 Mbit/s: 2 s for
  the steps and 1.5 s for the all-reduce.

  >>> slow = Cluster(workers=8, devices=4, bandwidth=8e6)
  >>> round_seconds(Traffic(per_step=0, per_round=1_000_000), 10, 0.1, slow)
  3.5
  >>> round_seconds(Traffic(per_step=1_000_000, per_round=0), 10, 0.1, slow)  # S-SGD
  17.0
  """
  if cluster.workers % cluster.devices:
    raise ValueError(f'{cluster.workers} workers cannot be divided over {cluster.devices} devices')
  reduced = lambda payload: all_reduce(payload, cluster) if payload and cluster.devices > 1 else 0.0
  step = step_seconds * cluster.workers / cluster.devices + reduced(traffic.per_step)
  if traffic.to_neighbours and cluster.devices > 1:
    step += cluster.latency + cluster.overhead * traffic.to_neighbours * 8 / cluster.bandwidth
  after = reduced(traffic.per_round)
  return max(period * step, after) if overlapped else period * step + after


def steps_seconds(steps: int, traffic: Traffic, period: int, step_seconds: float, cluster: Cluster, **how) -> float:
  """The time of `steps` steps, an epoch's or a run's, in rounds of `period`; the last may be shorter.

  Args:
    steps: of each worker.
    traffic: see `round_seconds`, as the rest.
    period: k.
    step_seconds: t.
    cluster: the workers, the devices and their network.
    **how: `all_reduce` and `overlapped`.

  >>> slow = Cluster(workers=8, devices=4, bandwidth=8e6)
  >>> steps_seconds(25, Traffic(per_step=0, per_round=1_000_000), 10, 0.1, slow)  # 25 · 0.2 + 3 · 1.5
  9.5
  """
  whole, rest = divmod(steps, period)
  of = lambda length: round_seconds(traffic, length, step_seconds, cluster, **how)
  return whole * of(period) + (of(rest) if rest else 0.0)


def period_for_share(share: float, step_seconds: float, all_reduce_seconds: float) -> int:
  """The shortest period with which at most `share` of the time is communication: a/(k·step + a) ≤ share.

  Args:
    share: between 0 and 1.
    step_seconds: a device's step, N/D·t.
    all_reduce_seconds: a, what a round communicates for.

  >>> period_for_share(0.1, step_seconds=0.2, all_reduce_seconds=1.5)  # 1.5/(68 · 0.2 + 1.5) = 0.0993
  68
  """
  return max(1, math.ceil(all_reduce_seconds * (1 - share) / (share * step_seconds) - 1e-9))
