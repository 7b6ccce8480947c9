"""What crosses the network in a round, read from the compiled program, beside the formula.

    python -m vrl_jax.tools.communication --config quadratic --config.algorithm=vrl_sgd
    python -m vrl_jax.tools.communication --config lenet_mnist --config.dataset=mnist_5k --all

`--all` compares all algorithms on the config's task. Bytes are what one device hands to its collectives (workers of one
device are summed before), or what one worker would with a device of its own.
"""

import argparse
import copy
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np

from vrl_jax import devices
from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.config import algorithm_options, validate
from vrl_jax.errors import UserError
from vrl_jax.experiment import make_experiment
from vrl_jax.hlo import Collective, collectives
from vrl_jax.launching import parse
from vrl_jax.report import names


class Account(NamedTuple):
  """One algorithm's communication in a round.

  Attributes:
    algorithm: its registry key.
    period: k.
    parameters: the model's size in bytes.
    steps: the collectives of every local step.
    beside: those of the round that need nothing from its local steps.
    after: those that wait for the local steps.
    formula: the bytes of a round as `vrl_jax.communication` counts them, without compiling.
    sent: the bytes that a worker sends with ring all-reduces.

  >>> sums = [Collective('all-reduce', 400, loops=1, needs_loop=True)]
  >>> Account('vrl_sgd', 20, 400, steps=[], beside=[], after=sums, formula=400, sent=700).compiled
  400
  >>> Account('s_sgd', 20, 400, steps=sums, beside=[], after=[], formula=8000, sent=14000).compiled
  8000
  """

  algorithm: str
  period: int
  parameters: int
  steps: list[Collective]
  beside: list[Collective]
  after: list[Collective]
  formula: int
  sent: int

  @property
  def compiled(self) -> int:
    """The bytes of a round in the compiled program."""
    per_step, per_round = (sum(c.bytes for c in some) for some in (self.steps, self.beside + self.after))
    return self.period * per_step + per_round


def account(config: ml_collections.ConfigDict) -> Account:
  """Compiles a round of the config and counts its collectives.

  Args:
    config: a whole config; its workers must be on at least two devices.

  >>> from vrl_jax.config_files import load_config
  >>> devices.prepare(2)
  >>> counted = account(load_config('quadratic'))  # one float64, averaged once in a round of 20 steps
  >>> counted.compiled, counted.formula, len(counted.steps)
  (8, 8, 0)
  """
  config = copy.deepcopy(config)
  config.init_epochs = 0.0  # the weights do not matter
  validate(config)
  with tempfile.TemporaryDirectory() as folder, jax.enable_x64(config.x64):
    experiment = make_experiment(config, pathlib.Path(folder))
    if len(experiment.arrangement.devices) < 2:
      raise UserError(f'workers={config.workers} on one device: nothing crosses a network; give --config.devices')
    engine, period = experiment.engine, max(2, experiment.periods.period)  # a scan of one step is no loop any more
    state, items = engine.init(*experiment.model), experiment.feed.items(0, period, 1)
    program = engine.compile('run', state, items, experiment.arrangement.replicate(np.int32(1)))
  found = collectives(program.as_text())
  in_round = [c for c in found if c.loops < 2]
  traffic = experiment.traffic
  return Account(
    algorithm=config.algorithm,
    period=period,
    parameters=sum(x.nbytes for x in jax.tree.leaves(experiment.model.params)),
    steps=[c for c in found if c.loops >= 2],
    beside=[c for c in in_round if not c.needs_loop],
    after=[c for c in in_round if c.needs_loop],
    formula=period * (traffic.per_step + traffic.to_neighbours) + traffic.per_round,
    sent=traffic.ring_bytes(period, 1, config.workers),
  )


def table(accounts: Sequence[Account]) -> str:
  """The accounts for people.

  >>> after = [Collective('all-reduce', 400, loops=1, needs_loop=True)]
  >>> print(table([Account('vrl_sgd', 20, 400, [], [], after, formula=400, sent=700)]))
  400 B of parameters, a round of 20 steps
           in every step  beside the steps  after the steps      a round  formula  sent per worker
  VRL-SGD  –              –                 1 all-reduce, 400 B  400 B    400 B    700 B
  """
  titles = ['', 'in every step', 'beside the steps', 'after the steps', 'a round', 'formula', 'sent per worker']
  rows = [titles]
  for one in accounts:
    sizes = (names.bytes_(one.compiled), names.bytes_(one.formula), names.bytes_(one.sent))
    rows.append([names.algorithm(one.algorithm), *map(_describe, (one.steps, one.beside, one.after)), *sizes])
  widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
  lines = ['  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
  head = f'{names.bytes_(accounts[0].parameters)} of parameters, a round of {accounts[0].period} steps'
  return '\n'.join([head, *lines])


def _describe(some):
  ops = ' + '.join(f'{sum(c.op == op for c in some)} {op}' for op in dict.fromkeys(c.op for c in some))
  return f'{ops}, {names.bytes_(sum(c.bytes for c in some))}' if some else '–'


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> main(['--config', 'nothing'])  # says on stderr what configs there are
  2
  """
  parser = argparse.ArgumentParser(
    prog='python -m vrl_jax.tools.communication', description=__doc__.split('\n')[0], add_help=False
  )
  parser.add_argument('--all', action='store_true')
  args, rest = parser.parse_known_args(argv)
  if not rest or '--help' in rest:
    print(__doc__)
    return 0
  try:
    config, *_ = parse(['communication', *rest])
    devices.prepare(config.devices, workers=config.workers)
    configs = [_with_algorithm(config, name) for name in ALGORITHMS] if args.all else [config]
    accounts = [account(one) for one in configs]
  except UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return error.exit_status
  print(table(accounts))
  return 0


def _with_algorithm(config, name):
  """The config with another algorithm; options that mean nothing to it go back to their defaults."""
  config, own = copy.deepcopy(config), algorithm_options(name)
  config.algorithm = name
  for option, default in algorithm_options().items():
    if option not in own:
      config[option] = default
  return config


if __name__ == '__main__':
  sys.exit(main())
