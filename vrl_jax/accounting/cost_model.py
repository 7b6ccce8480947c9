r"""A cost model of communication: the time of a step, a round and an epoch on a given network.

N workers run on D devices. Each device can send B bits per second, and every message has a latency of :math:`\alpha`
seconds. The workers on one device take their steps one after the other and are summed before anything is sent, so M
bytes of parameters are M bytes to send for any N:

.. math::

  \text{step} = \frac{N}{D} t, \qquad
  \text{ring} = 2 (D - 1) \Big(\alpha + \frac{8 h M}{D B}\Big), \qquad
  \text{tree} = 2 \lceil \log_2 D \rceil \Big(\alpha + \frac{8 h M}{B}\Big), \qquad
  \text{round} = k \, \text{step} + \text{all-reduces} .

A model that is sent in F fragments takes F all-reduces of M/F bytes. Each of them is hidden behind the τ local steps for
which it may take, and the workers wait for the rest: :math:`F \max(0, \text{ring}(M/F) - \tau \, \text{step})`. With 8 or 4
bits per number the payload is smaller, and each all-reduce is an all-to-all and an all-gather with as many messages;
:func:`vrl_jax.accounting.traffic.traffic` counts the bytes.

t is the time of one worker's step and h the number of bytes on the wire per byte of payload. The ring sends 2(D−1)/D of
the payload from each device, which is optimal, in 2(D−1) messages. The tree (a reduction to one device and a broadcast
from it) needs fewer messages and is faster where latency dominates. gloo's all-reduce, which JAX uses between CPUs, is
the ring. `docs/scaling.md` has the error of the model against measured times.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from vrl_jax.accounting.traffic import Traffic

TCP_OVERHEAD = 1514 / 1448
"""h of TCP over Ethernet: 1,448 bytes of payload in a frame of 1,514, with IPv4 and TCP timestamps."""


class Network(NamedTuple):
  """The workers, their devices and the links between the devices.

  Attributes:
    workers: N.
    devices: D, the participants of the all-reduce. Several hosts with several devices each form one ring of all
      devices, and the links between hosts carry as much as any other link.
    bandwidth: B, in bits per second, of each device's link (of each host's link if its devices share one).
    latency: α, in seconds per message.
    overhead: h, the number of bytes on the wire per byte of payload.

  >>> laptop = Network(workers=8, devices=2, bandwidth=1e9, latency=1e-4)
  >>> laptop.workers // laptop.devices  # workers that take their steps one after the other
  4
  """

  workers: int
  devices: int
  bandwidth: float
  latency: float = 0.0
  overhead: float = 1.0


def ring_seconds(payload: float, network: Network) -> float:
  """The time of a ring all-reduce of `payload` bytes, in seconds: 2(D−1)(α + 8hM/(DB)).

  >>> ring_seconds(1_000_000, Network(workers=8, devices=4, bandwidth=8e6, latency=0.01))  # 6 (0.01 + 0.25)
  1.56
  """
  share = network.overhead * payload * 8 / (network.devices * network.bandwidth)
  return 2 * (network.devices - 1) * (network.latency + share)


def tree_seconds(payload: float, network: Network) -> float:
  """The time of a reduction along a binary tree and a broadcast back, in seconds: 2⌈log₂D⌉(α + 8hM/B).

  >>> tree_seconds(1_000_000, Network(workers=8, devices=4, bandwidth=8e6, latency=0.01))  # 4 (0.01 + 1)
  4.04
  """
  depth = math.ceil(math.log2(network.devices))
  return 2 * depth * (network.latency + network.overhead * payload * 8 / network.bandwidth)


ALL_REDUCES: dict[str, Callable[[float, Network], float]] = {'ring': ring_seconds, 'tree': tree_seconds}


def fastest_all_reduce(payload: float, network: Network) -> tuple[str, float]:
  """The faster of the ring and the tree, and its time.

  >>> many = Network(workers=1024, devices=1024, bandwidth=10e9, latency=50e-6)
  >>> fastest_all_reduce(4e3, many)[0], fastest_all_reduce(4e9, many)[0]
  ('tree', 'ring')
  """
  return min(((name, seconds(payload, network)) for name, seconds in ALL_REDUCES.items()), key=lambda pair: pair[1])


def round_seconds(
  traffic: Traffic,
  period: int,
  step_seconds: float,
  network: Network,
  *,
  all_reduce: Callable[[float, Network], float] = ring_seconds,
  fragments: int = 1,
  delay: int = 0,
) -> float:
  """The time of a round of `period` steps.

  Args:
    traffic: what the algorithm sends per step and per round (`vrl_jax.accounting.traffic.traffic`).
    period: k.
    step_seconds: t, the time of one worker's step alone on a device, without communication.
    network: the workers, devices and links.
    all_reduce: `ring_seconds` or `tree_seconds`.
    fragments: F, the number of all-reduces in which the round's bytes are sent.
    delay: τ, the local steps with which each of them overlaps; k for CoCoD-SGD.

  Returns:
    Seconds.

  For VRL-SGD with 1 MB of parameters, a round of 10 steps of 0.1 s on 4 devices with 2 workers each at 8 Mbit/s takes
  2 s for the steps and 1.5 s for the all-reduce.

  >>> slow = Network(workers=8, devices=4, bandwidth=8e6)
  >>> round_seconds(Traffic(per_step=0, per_round=1_000_000), 10, 0.1, slow)
  3.5
  >>> round_seconds(Traffic(per_step=1_000_000, per_round=0), 10, 0.1, slow)  # S-SGD
  17.0
  >>> round_seconds(Traffic(per_step=0, per_round=1_000_000), 10, 0.1, slow, fragments=2, delay=3)  # 2 (0.75 - 0.6)
  2.3
  """
  if network.workers % network.devices:
    raise ValueError(f'{network.workers} workers cannot be divided over {network.devices} devices')
  reduced = lambda payload: all_reduce(payload, network) if payload and network.devices > 1 else 0.0
  step = step_seconds * network.workers / network.devices + reduced(traffic.per_step)
  if traffic.to_neighbours and network.devices > 1:
    step += network.latency + network.overhead * traffic.to_neighbours * 8 / network.bandwidth
  waiting = fragments * max(0.0, reduced(traffic.per_round / fragments) - min(delay, period / fragments) * step)
  return period * step + waiting


def steps_seconds(
  steps: int,
  traffic: Traffic,
  period: int,
  step_seconds: float,
  network: Network,
  *,
  all_reduce: Callable[[float, Network], float] = ring_seconds,
  fragments: int = 1,
  delay: int = 0,
) -> float:
  """The time of `steps` steps (an epoch, a run) in rounds of `period`; the last round may be shorter.

  Args:
    steps: the number of steps of each worker.
    traffic: see `round_seconds`, also for the other arguments.
    period: k.
    step_seconds: t.
    network: the workers, devices and links.
    all_reduce: `ring_seconds` or `tree_seconds`.
    fragments: F.
    delay: τ.

  >>> slow = Network(workers=8, devices=4, bandwidth=8e6)
  >>> steps_seconds(25, Traffic(per_step=0, per_round=1_000_000), 10, 0.1, slow)  # 25 · 0.2 + 3 · 1.5
  9.5
  """
  rounds, rest = divmod(steps, period)
  seconds = lambda length: round_seconds(
    traffic, length, step_seconds, network, all_reduce=all_reduce, fragments=fragments, delay=delay
  )
  return rounds * seconds(period) + (seconds(rest) if rest else 0.0)


def period_for_share(share: float, step_seconds: float, all_reduce_seconds: float) -> int:
  """The shortest period for which communication takes at most `share` of the time: a/(k·step + a) ≤ share.

  Args:
    share: between 0 and 1.
    step_seconds: the time of a step on a device, N/D·t.
    all_reduce_seconds: a, the communication time of a round.

  >>> period_for_share(0.1, step_seconds=0.2, all_reduce_seconds=1.5)  # 1.5/(68 · 0.2 + 1.5) = 0.0993
  68
  """
  return max(1, math.ceil(all_reduce_seconds * (1 - share) / (share * step_seconds) - 1e-9))
