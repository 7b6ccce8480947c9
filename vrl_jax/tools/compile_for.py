"""Compiles the rounds of a config for TPUs or GPUs that are not attached, and says what the programs send and need.

    python -m vrl_jax.tools.compile_for --config lenet_mnist --topology v5e:2x4
    python -m vrl_jax.tools.compile_for --config lenet_mnist --topology v5e:16x16 h100:8 --all

The programs are those of a run on these devices, with one worker per device unless `--config.workers` or
`--config.devices_per_worker` is given; `--config.island=sharded` divides the model of a worker over its devices. Nothing
runs, so this shows that a run compiles and what it communicates, not its speed. The compilers are in the packages
`jax[tpu]` (libtpu) and `jax-cuda12-plugin` with `jax-cuda12-pjrt`; no accelerator and no driver is needed.
"""

import copy
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np

from vrl_jax.accounting.topologies import Topology, find_topology
from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.cli.flags import parse
from vrl_jax.config.fields import complete, validate
from vrl_jax.engine import devices
from vrl_jax.engine.device_counts import device_counts
from vrl_jax.engine.feed import Supply
from vrl_jax.engine.placement import Placement
from vrl_jax.engine.shapes import copied, divided
from vrl_jax.errors import UserError
from vrl_jax.report import names
from vrl_jax.tools.arguments import ArgumentParser, reports_errors
from vrl_jax.tools.communication import RoundCommunication, describe, read_round, with_algorithm
from vrl_jax.training.experiment import make_engine, make_experiment


class CompiledRound(NamedTuple):
  """A round compiled for a topology.

  Attributes:
    topology: its name.
    devices: the number and kind of the devices that the run uses.
    idle: the number of devices that it does not use.
    communication: the collectives of the round; None if it does not fit into the devices' memory.
    peak: bytes that it needs on each device.
    memory: bytes of each device; None if that is not known.
    flops: floating-point operations on one device, with the body of every loop counted once; None if the compiler does
      not count them.
    estimate: the compiler's estimate of its time in seconds, likewise.
    seconds: how long the compilation took.

  >>> CompiledRound('h100:8', '8 H100', 0, None, peak=90 << 30, memory=80 << 30, flops=None, estimate=None, seconds=1).fits
  False
  """

  topology: str
  devices: str
  idle: int
  communication: RoundCommunication | None
  peak: int | None
  memory: int | None
  flops: float | None
  estimate: float | None
  seconds: float

  @property
  def fits(self) -> bool:
    """Whether a device has enough memory, as far as is known."""
    return self.communication is not None and (self.peak or 0) <= (self.memory or sys.maxsize)


def compile_round(config: ml_collections.ConfigDict, topology: Topology) -> CompiledRound:
  """Compiles a round of a config for a topology.

  Args:
    config: a complete config; its `devices` are ignored.
    topology: the devices.

  >>> from vrl_jax.config.files import load_config
  >>> attached = Topology('cpu', tuple(jax.devices()[:1]), memory=None, compiler_options={})
  >>> one = compile_round(load_config('quadratic'), attached)
  >>> one.fits, one.devices, one.communication.period
  (True, '1 cpu', 20)
  """
  config = copy.deepcopy(complete(config))
  used, size = device_counts(
    config.workers,
    len(topology.devices),
    devices_per_worker=config.devices_per_worker,
    platform=topology.devices[0].platform,
    batch_size=config.batch_size,
  )
  placement = Placement(topology.devices[:used], config.workers * size // used, size, config.island)
  # The shapes come from a run on one attached device; the initial weights do not change the program.
  config.update(devices=1, devices_per_worker=1, island='replicated', init_epochs=0.0)
  validate(config)
  with tempfile.TemporaryDirectory() as folder, jax.enable_x64(config.x64):
    experiment = make_experiment(config, pathlib.Path(folder))
    feed, period = experiment.feed, max(2, experiment.periods.period)  # XLA removes the loop of a scan of one step
    data = (copied if feed.is_shared else divided)(feed.supply.data, placement)
    supply = Supply(data, feed.supply.fetch, copied(feed.supply.frozen, placement))
    engine = make_engine(config, experiment.algorithm, experiment.task, placement, supply)
    args = (
      engine.state_shapes(*experiment.model),
      divided(feed.items(0, period, 1), placement, placement.batch_sharding),
    )
    lowered = engine.lower('run', *args, copied(experiment.placement.replicate(np.int32(1)), placement))
    began = time.perf_counter()
    program, peak = _compile(lowered, topology)
    seconds = time.perf_counter() - began
  cost = (program.cost_analysis() if program else None) or {}
  estimate = cost.get('optimal_seconds', -1.0)  # negative if the compiler has none
  if program is not None:
    usage = program.memory_analysis()
    peak = usage.argument_size_in_bytes + usage.output_size_in_bytes - usage.alias_size_in_bytes
    peak += usage.temp_size_in_bytes + usage.generated_code_size_in_bytes
  return CompiledRound(
    topology=topology.name,
    devices=f'{used} {placement.devices[0].device_kind}'
    + (f' in islands of {size} ({placement.island})' if size > 1 else ''),
    idle=len(topology.devices) - used,
    communication=read_round(config, experiment._replace(placement=placement), period, program) if program else None,
    peak=peak,
    memory=topology.memory,
    flops=cost.get('flops'),
    estimate=estimate if estimate > 0 else None,
    seconds=seconds,
  )


def _compile(lowered, topology):
  """The program; None if the compiler finds that it needs too much memory."""
  try:
    return lowered.compile(topology.compiler_options), None
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    return None, None


def report(config: ml_collections.ConfigDict, one: CompiledRound) -> str:
  """Lines about one program.

  >>> from vrl_jax.config.files import load_config
  >>> sent = RoundCommunication('vrl_sgd', 20, 400, [], [], [], formula=400, sent=700)
  >>> h100 = CompiledRound('h100:8', '8 H100', 0, sent, 10**6, 80 << 30, flops=2e6, estimate=None, seconds=1.5)
  >>> print(report(load_config('quadratic'), h100))
  h100:8: quadratic, VRL-SGD, 2 workers on 8 H100, a round of 20 steps, compiled in 1.5 s
    collectives in every step:  –
    during the steps:           –
    after the steps:            –
    memory of a device:         1 MB of 85.9 GB
    flops of a device:          2e+06 (the body of every loop counted once)
  """
  workers = f'{config.workers} workers on {one.devices}' + (f' ({one.idle} idle)' if one.idle else '')
  head = f'{one.topology}: {config.task}, {names.algorithm(config.algorithm)}, {workers}'
  if one.communication is None:
    return f'{head}: needs more memory than a device has, {_bytes(one.memory)}'
  lines = [
    ('collectives in every step', describe(one.communication.in_steps)),
    ('during the steps', _overlap(one.communication)),
    ('after the steps', describe(one.communication.after_steps)),
    *_of_islands(one.communication),
    ('memory of a device', f'{_bytes(one.peak)} of {_bytes(one.memory)}{"" if one.fits else ": too much"}'),
  ]
  if one.flops is not None:
    estimate = '' if one.estimate is None else f', in {one.estimate:.3g} s by the estimate of the compiler'
    lines.append(('flops of a device', f'{one.flops:.3g}{estimate} (the body of every loop counted once)'))
  head += f', a round of {one.communication.period} steps, compiled in {one.seconds:.1f} s'
  width = max(len(name) for name, _ in lines) + 3
  return '\n'.join([head, *(f'  {name + ":":<{width}}{value}' for name, value in lines)])


def _of_islands(sent):
  """What the devices of an island send to each other, if there are several."""
  if not sent.inside:
    return []
  inside, between = names.format_bytes(sent.sent_inside), names.format_bytes(sent.sent_between)
  return [
    ('inside an island, every step', describe(sent.inside_steps)),
    ('inside an island, otherwise', describe(sent.inside_rounds)),
    ('a device sends per round', f'{inside} inside its island, {between} to others'),
  ]


def table(rounds: Sequence[tuple[ml_collections.ConfigDict, CompiledRound]]) -> str:
  """A row for each program.

  >>> from vrl_jax.config.files import load_config
  >>> sent = RoundCommunication('vrl_sgd', 20, 400, [], [], [], formula=400, sent=700)
  >>> h100 = CompiledRound('h100:8', '8 H100', 0, sent, 10**6, 80 << 30, flops=2e6, estimate=None, seconds=1.5)
  >>> print(table([(load_config('quadratic'), h100)]))
  | topology | task      | algorithm | in every step | during the steps | after the steps | bytes per round | memory of a device |
  |----------|-----------|-----------|---------------|------------------|-----------------|-----------------|--------------------|
  | h100:8   | quadratic | VRL-SGD   | –             | –                | –               | 0 B             | 1 MB of 85.9 GB    |
  """
  titles = ['topology', 'task', 'algorithm', 'in every step', 'during the steps', 'after the steps', 'bytes per round']
  rows = [[*titles, 'memory of a device']]
  for config, one in rounds:
    row = [one.topology, config.task, names.algorithm(config.algorithm)]
    sent = one.communication
    if sent is None:
      rows.append([*row, '', '', '', '', f'more than {_bytes(one.memory)}'])
      continue
    places = describe(sent.in_steps), _overlap(sent), describe(sent.after_steps)
    rows.append([*row, *places, names.format_bytes(sent.compiled), f'{_bytes(one.peak)} of {_bytes(one.memory)}'])
  widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
  lines = ['| ' + ' | '.join(cell.ljust(width) for cell, width in zip(row, widths)) + ' |' for row in rows]
  return '\n'.join([lines[0], '|' + '|'.join('-' * (width + 2) for width in widths) + '|', *lines[1:]])


def _overlap(sent):
  """The collectives that do not depend on the steps, and whether the schedule overlaps them with the steps."""
  overlapped = [c for c in sent.overlapping if c.during_loop]
  others = [c for c in sent.overlapping if not c.during_loop]
  parts = [describe(overlapped)] if overlapped or not others else []
  return ' and '.join([*parts, *([f'{describe(others)} (could be, but is not)'] if others else [])])


def _bytes(size):
  return '?' if size is None else names.format_bytes(size)


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> main(['--config', 'quadratic', '--topology', 'v5e'])  # prints what a topology can be to stderr
  2
  """
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.compile_for',
    usage='%(prog)s [-h] [--all] --topology NAME [NAME …] --config NAME_OR_FILE [--config.FIELD=VALUE …]',
    description='Compiles the rounds of a config for TPUs or GPUs that are not attached.',
    allow_abbrev=False,
  )
  parser.add_argument(
    '--topology', nargs='+', required=True, metavar='NAME', help='such as v5e:2x4, v5e:2x4*2 (two slices), h100:8'
  )
  parser.add_argument('--all', action='store_true', help='all algorithms, as a table')
  args, flags = parser.parse_known_args(argv)
  config = parse(['compile_for', *flags]).config
  if config is None:
    raise UserError('--config is missing (see --help)')
  jax.config.update('jax_platforms', 'cpu')  # an accelerator that is attached is not needed
  devices.prepare_devices(1)
  found = [find_topology(name) for name in args.topology]
  names_of_all = dict.fromkeys([*ALGORITHMS, config.algorithm])
  configs = [with_algorithm(config, name) for name in names_of_all] if args.all else [config]
  rounds = []
  for topology in found:
    for one in configs:
      if not any(flag.startswith('--config.workers') for flag in flags):
        one = copy.deepcopy(one)
        one.workers = max(1, len(topology.devices) // (config.devices_per_worker or 1))
      rounds.append((one, compile_round(one, topology)))
      if not args.all:
        print(report(*rounds[-1]), flush=True)
  if args.all:
    print(table(rounds))
  return 0


if __name__ == '__main__':
  sys.exit(main())
