"""The command line: flags to a config, and mistakes to one line and an exit status."""

import datetime
import os
import pathlib
import sys

import ml_collections
from absl import flags, logging
from ml_collections import config_flags

from vrl_jax.errors import UserError

USAGE = 'launch.py --config CONFIG.py [--workdir DIR] [--config.FIELD=VALUE …]'


def main(argv: list[str]) -> int:
  """Runs launch.py with these arguments (the first is the program's name); returns the exit status."""
  logging.set_verbosity(logging.WARNING)
  try:
    config, workdir = parse(argv)
    run(config, workdir)
  except UserError as error:
    print(f'error: {_one_line(error)}', file=sys.stderr)
    return error.exit_status
  except KeyboardInterrupt:
    print('error: stopped at once; the same command goes on from the last checkpoint', file=sys.stderr)
    return 130
  return 0


def parse(argv: list[str]) -> tuple[ml_collections.ConfigDict, pathlib.Path]:
  """Reads the flags."""
  values = flags.FlagValues()
  config = config_flags.DEFINE_config_file('config', None, 'the config file', lock_config=True, flag_values=values)
  workdir = flags.DEFINE_string('workdir', None, 'the folder of the run', flag_values=values)
  asked_for_help = flags.DEFINE_bool('help', False, 'show this help', short_name='h', flag_values=values)
  try:
    rest = values(argv)
  except Exception as error:  # a config file can raise anything at all
    raise UserError(_explain(error, argv)) from error
  if asked_for_help.value:
    print(f'usage: {USAGE}\n\n{values.main_module_help() or values.get_help()}')
    raise SystemExit(0)
  if len(rest) > 1:
    raise UserError(f'unexpected argument {rest[1]!r}; usage: {USAGE}')
  if config.value is None:
    raise UserError(f'--config is missing; usage: {USAGE}')
  default = pathlib.Path('runs') / f'{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}_{config.value.task}'
  return config.value, pathlib.Path(workdir.value or default)


def run(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
  """Runs a config, or its sweep, in `workdir`."""
  from vrl_jax.sweep import run_sweep
  from vrl_jax.train import train_and_evaluate

  print(f'workdir: {workdir}')
  if config.get('sweep'):
    run_sweep(config, workdir)
  else:
    summary = train_and_evaluate(config, workdir)
    shown = ('step', 'train_loss', 'test_accuracy', 'distance_to_optimum', 'communications', 'seconds')
    print(', '.join(f'{name} {summary[name]:.6g}' for name in shown if summary.get(name) is not None))


def _explain(error, argv):
  given = [arg for arg in argv if arg.startswith(('--config=', '-config='))]
  return f'{_one_line(error)} ({", ".join(given)})' if given else _one_line(error)


def _one_line(error):
  text = ' '.join(str(error).split())
  return text or type(error).__name__
