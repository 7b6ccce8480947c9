"""Bytes inside and between hosts whose devices are one worker each: python -m benchmarks.network --islands.

Two hosts have two devices each. As an island of two they are one worker, whose gradient is averaged inside the host at
every step, while only the models cross the link between the hosts, every 20 steps. The bytes of a round are stored in
results/data/network_islands.json.
"""

import json
import pathlib
import tempfile
from typing import Any

from benchmarks import measure
from benchmarks.network import RESULTS, namespaces, runs
from vrl_jax.accounting import cost_model
from vrl_jax.report import names

STORED = RESULTS.with_name('network_islands.json')
HOSTS, PERIOD, STEPS_PER_EPOCH, PARAMETERS = 2, 20, 15, 61_706
ROUNDS = (4, 12)  # of the short and the long run, of which the difference counts
BANDWIDTH = 1e8
SETTINGS = (
  ('vrl_sgd', 1, 'replicated'),
  ('vrl_sgd', 2, 'replicated'),
  ('vrl_sgd', 2, 'sharded'),
  ('s_sgd', 2, 'sharded'),
)
_FLAGS = (
  '--config=configs/lenet_mnist.py',
  '--config.dataset=mnist_5k',
  '--config.init_epochs=0.0',
  f'--config.workers={HOSTS}',
  '--config.batch_size=128',
)
_TIMEOUT = 900.0


def measure_all() -> dict[str, Any]:
  """Measures and stores all settings."""
  points = [measure_setting(*setting) for setting in SETTINGS]
  results = {'machine': measure.machine(), 'points': points}
  STORED.write_text(json.dumps(results, indent=1) + '\n')
  return results


def stored() -> dict[str, Any]:
  """What `measure_all` has stored."""
  return json.loads(STORED.read_text())


def measure_setting(algorithm: str, devices_per_worker: int, island: str) -> dict[str, Any]:
  """The runs of one setting."""
  period = PERIOD if algorithm != 's_sgd' else 2
  flags = [*_FLAGS, f'--config.algorithm={algorithm}', f'--config.period={period}']
  flags += [f'--config.devices={HOSTS * devices_per_worker}', f'--config.devices_per_worker={devices_per_worker}']
  flags += [f'--config.island={island}'] if devices_per_worker > 1 else []
  about = {'algorithm': algorithm, 'devices_per_worker': devices_per_worker, 'island': island, 'period': period}
  with namespaces.network(HOSTS) as hosts, tempfile.TemporaryDirectory() as empty:
    measured = [
      runs.launch(
        hosts,
        flags,
        epochs=rounds * period / STEPS_PER_EPOCH,
        bandwidth=BANDWIDTH,
        start=pathlib.Path(empty),
        timeout=_TIMEOUT,
      )
      for rounds in ROUNDS
    ]
  short, long = (run._asdict() for run in measured)
  return about | {'short': short, 'long': long}


def per_step(point: dict[str, Any]) -> runs.Training:
  """The bytes of a step in plain rounds."""
  return runs.training(runs.Run(**point['short']), runs.Run(**point['long']))


def over_link(point: dict[str, Any]) -> float:
  """The bytes that a host sends over its link in a step by the formula of the ring.

  Every device of an island has its own ring with its counterpart on the other host: for its part of the model, or, if
  the island is replicated, for all of it.
  """
  copies = point['devices_per_worker'] if point['island'] == 'replicated' else 1
  every = 1 if point['algorithm'] == 's_sgd' else point['period']
  return 2 * (HOSTS - 1) / HOSTS * copies * 4 * PARAMETERS / every


def table(results: dict[str, Any]) -> str:
  """The bytes of 20 steps."""
  titles = ['algorithm', 'devices of a worker', 'over the link, per host', 'by the formula', 'inside a host']
  rows = [titles]
  for point in results['points']:
    step, size = per_step(point), point['devices_per_worker']
    sizes = (step.sent / HOSTS, over_link(point), step.inside / HOSTS)
    devices = '1' if size == 1 else f'{size}, {point["island"]}'
    rows.append([names.algorithm(point['algorithm']), devices, *(names.format_bytes(PERIOD * x) for x in sizes)])
  return measure.table(rows)


def wire(point: dict[str, Any]) -> float:
  """`over_link` with the headers of full frames."""
  return cost_model.TCP_OVERHEAD * over_link(point)
