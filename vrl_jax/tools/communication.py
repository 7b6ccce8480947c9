"""Counts the bytes that are communicated in a round, from the compiled program, and compares them with the formula.

    python -m vrl_jax.tools.communication --config quadratic --config.algorithm=vrl_sgd
    python -m vrl_jax.tools.communication --config lenet_mnist --config.dataset=mnist_5k --all

`--all` compares all algorithms on the task of the config. The bytes are the operands of the collectives of one device,
after the workers on it have been summed: as many as for one worker with its own device.
"""

import copy
import math
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np

from vrl_jax.accounting.hlo import Collective, collectives
from vrl_jax.accounting.traffic import traffic
from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.cli.flags import parse
from vrl_jax.config.algorithms import algorithm_options
from vrl_jax.config.fields import complete, set_algorithm, validate
from vrl_jax.engine import devices
from vrl_jax.errors import UserError
from vrl_jax.report import names
from vrl_jax.tools.arguments import ArgumentParser, reports_errors
from vrl_jax.training.experiment import Experiment, make_experiment


class RoundCommunication(NamedTuple):
  """The communication of one algorithm in a round.

  Attributes:
    algorithm: the registry key.
    period: k.
    parameters: the size of the model in bytes.
    in_steps: the collectives between workers in each local step; of islands, between these.
    overlapping: those of the round that can run at the same time as some of its local steps.
    after_steps: the others of the round.
    formula: the bytes of a round according to `vrl_jax.accounting.traffic`, which does not compile; of a device's part
      of the model, if it is sharded over an island.
    sent: the bytes that a worker sends with ring all-reduces, if it has its own device.
    devices: the number of devices, or islands.
    inside: the collectives between the devices of an island.

  >>> sums = [Collective('all-reduce', 400, loops=1, needs_loop=True)]
  >>> RoundCommunication('vrl_sgd', 20, 400, [], [], after_steps=sums, formula=400, sent=700).compiled
  400
  >>> sums = [Collective('all-reduce', 400, loops=2, needs_loop=True)]
  >>> RoundCommunication('s_sgd', 20, 400, in_steps=sums, overlapping=[], after_steps=[], formula=8000, sent=1).compiled
  8000
  """

  algorithm: str
  period: int
  parameters: int
  in_steps: list[Collective]
  overlapping: list[Collective]
  after_steps: list[Collective]
  formula: int
  sent: int
  devices: int = 2
  inside: Sequence[Collective] = ()

  @property
  def compiled(self) -> int:
    """The bytes of a round between workers in the compiled program; an all-to-all and an all-gather count half."""
    return self._per_round([*self.in_steps, *self.overlapping, *self.after_steps], lambda c: c.reduced(self.devices))

  @property
  def inside_steps(self) -> list[Collective]:
    """Those of `inside` in each local step."""
    return [c for c in self.inside if _is_in_step(c)]

  @property
  def inside_rounds(self) -> list[Collective]:
    """The others of `inside`."""
    return [c for c in self.inside if not _is_in_step(c)]

  @property
  def sent_inside(self) -> int:
    """The bytes that a device sends to others of its island in a round; inner loops of a step count once."""
    return self._per_round(self.inside, lambda c: c.sent)

  @property
  def sent_between(self) -> int:
    """The bytes that a device sends to other islands in a round."""
    return self._per_round([*self.in_steps, *self.overlapping, *self.after_steps], lambda c: c.sent)

  def _per_round(self, found, size):
    return round(sum(size(c) * (self.period if _is_in_step(c) else 1) for c in found))


def count_communication(config: ml_collections.ConfigDict) -> RoundCommunication:
  """Compiles a round of a config and counts its collectives.

  Args:
    config: a complete config, whose workers are on at least two devices.

  >>> from vrl_jax.config.files import load_config
  >>> devices.prepare_devices(2)
  >>> counted = count_communication(load_config('quadratic'))  # one float64, averaged once per round of 20 steps
  >>> counted.compiled, counted.formula, len(counted.in_steps)
  (8, 8, 0)
  """
  config = copy.deepcopy(complete(config))
  config.init_epochs = 0.0  # the initial weights do not change the communication
  validate(config)
  with tempfile.TemporaryDirectory() as folder, jax.enable_x64(config.x64):
    experiment = make_experiment(config, pathlib.Path(folder))
    if experiment.placement.islands < 2:
      raise UserError(
        f'workers={config.workers} on one device, must be on several to communicate: set --config.devices'
      )
    engine, period = experiment.engine, max(2, experiment.periods.period)  # XLA removes the loop of a scan of one step
    state, items = engine.init(*experiment.model), experiment.feed.items(0, period, 1)
    program = engine.compile('run', state, items, experiment.placement.replicate(np.int32(1)))
  return read_round(config, experiment, period, program)


def read_round(
  config: ml_collections.ConfigDict, experiment: Experiment, period: int, program: jax.stages.Compiled
) -> RoundCommunication:
  """The communication of a compiled round.

  Args:
    config: a complete config.
    experiment: made from it.
    period: k in the program, at least 2.
    program: a round of the experiment, perhaps compiled for other devices.
  """
  text = program.as_text()
  if text is None:
    raise UserError('the backend does not show the compiled program: run with JAX_PLATFORMS=cpu')
  found = collectives(text)
  placement = experiment.placement
  between = [c for c in found if not c.is_inside(placement.devices_per_island)]
  in_round = [c for c in between if not _is_in_step(c)]
  sends, number = experiment.traffic, placement.islands
  formula = period * (sends.per_step + sends.to_neighbours) + sends.per_round
  if config.bits < 32:
    with jax.enable_x64(config.x64):
      counted = [traffic(experiment.algorithm, experiment.model.params, config.workers, d) for d in (number, None)]
    formula += counted[0].per_round - counted[1].per_round
  return RoundCommunication(
    algorithm=config.algorithm,
    period=period,
    parameters=sum(x.nbytes for x in jax.tree.leaves(experiment.model.params)),
    in_steps=[c for c in between if _is_in_step(c)],
    overlapping=[c for c in in_round if c.loops_beside],
    after_steps=[c for c in in_round if not c.loops_beside],
    formula=round(formula * _part_of_device(config, experiment.model.params, placement)),
    sent=sends.ring_bytes(period, 1, config.workers),
    devices=number,
    inside=[c for c in found if c.is_inside(placement.devices_per_island)],
  )


def _part_of_device(config, params, placement):
  """The part of a model that a device sends for its island."""
  if config.fragments > 1 or config.delay or config.bits < 32:  # as vectors, which are divided over every island
    return 1 / placement.devices_per_island
  part = 0
  for x in jax.tree.leaves(params):
    shape = (placement.islands, 1, *x.shape)
    part += x.dtype.itemsize * math.prod(placement.state_sharding(shape).shard_shape(shape))
  return part / sum(x.nbytes for x in jax.tree.leaves(params))


def _is_in_step(collective):
  """Whether it is in the loop of local steps, which is in the loop of rounds."""
  return collective.loops >= 2


def table(rounds: Sequence[RoundCommunication]) -> str:
  """A table with a row for each algorithm.

  >>> after = [Collective('all-reduce', 400, loops=1, needs_loop=True)]
  >>> print(table([RoundCommunication('vrl_sgd', 20, 400, [], [], after, formula=400, sent=700)]))
  400 B of parameters, rounds of 20 steps
           in every step  overlapping the steps  after the steps      per round  formula  sent per worker
  VRL-SGD  –              –                      1 all-reduce, 400 B  400 B      400 B    700 B
  """
  titles = ['', 'in every step', 'overlapping the steps', 'after the steps', 'per round', 'formula', 'sent per worker']
  islands = any(one.inside for one in rounds)
  rows = [titles + ['inside an island'] * islands]
  for one in rounds:
    sizes = (names.format_bytes(one.compiled), names.format_bytes(one.formula), names.format_bytes(one.sent))
    rows.append(
      [names.algorithm(one.algorithm), *map(describe, (one.in_steps, one.overlapping, one.after_steps)), *sizes]
      + [_inside(one)] * islands
    )
  widths = [max(map(len, column)) for column in zip(*rows)]
  lines = ['  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
  head = f'{names.format_bytes(rounds[0].parameters)} of parameters, rounds of {rounds[0].period} steps'
  return '\n'.join([head, *lines])


def _inside(one):
  step, others = describe(one.inside_steps), describe(one.inside_rounds)
  return f'every step: {step}; after: {others}; a device sends {names.format_bytes(one.sent_inside)}'


def describe(found: Sequence[Collective]) -> str:
  """Their number, kind and size.

  >>> describe([Collective('all-reduce', 400, loops=1, needs_loop=True)]), describe([])
  ('1 all-reduce, 400 B', '–')
  """
  ops = ' + '.join(f'{sum(c.op == op for c in found)} {op}' for op in dict.fromkeys(c.op for c in found))
  return f'{ops}, {names.format_bytes(sum(c.bytes for c in found))}' if found else '–'


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> main(['--config', 'nothing'])  # prints the known configs to stderr
  2
  """
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.communication',
    usage='%(prog)s [-h] [--all] --config NAME_OR_FILE [--config.FIELD=VALUE …]',
    description='Counts the bytes that are communicated in a round, from the compiled program.',
    allow_abbrev=False,
  )
  parser.add_argument('--all', action='store_true', help='compare all algorithms on the task of the config')
  args, flags = parser.parse_known_args(argv)
  config = parse(['communication', *flags]).config
  if config is None:
    raise UserError('--config is missing (see --help)')
  devices.prepare_devices(config.devices, workers=config.workers, devices_per_worker=config.devices_per_worker)
  names_of_all = dict.fromkeys([*ALGORITHMS, config.algorithm])
  configs = [with_algorithm(config, name) for name in names_of_all] if args.all else [config]
  print(table([count_communication(one) for one in configs]))
  return 0


def with_algorithm(config: ml_collections.ConfigDict, name: str) -> ml_collections.ConfigDict:
  """The config with another algorithm, and with defaults for the options that this algorithm does not have.

  >>> from vrl_jax.config.files import load_config
  >>> with_algorithm(load_config('quadratic'), 'easgd').algorithm
  'easgd'
  """
  config, options = copy.deepcopy(config), algorithm_options(name)
  set_algorithm(config, name)
  for option, default in algorithm_options().items():
    if option not in options:
      config[option] = default
  return config


if __name__ == '__main__':
  sys.exit(main())
