"""Parses the command line: the config with its overrides, the run directory, the cluster."""

import datetime
import difflib
import pathlib
from typing import NamedTuple

import ml_collections
from absl import flags
from ml_collections import config_flags

from vrl_jax.cluster.join import Cluster
from vrl_jax.config.dotted import is_dotted
from vrl_jax.config.fields import set_algorithm
from vrl_jax.config.files import load_config
from vrl_jax.errors import UserError
from vrl_jax.system.storage import expand_home

USAGE = (
  'launch.py (or vrl-jax) --config NAME_OR_FILE [--workdir DIR] [--config.FIELD=VALUE …] | --list | --help | --version'
)


class Arguments(NamedTuple):
  """The parsed command line.

  Attributes:
    config: the config with its overrides; may be None with `--help` or `--list`.
    workdir: the run directory.
    cluster: the address of the coordinator and the like; None in a run of one process.
    help: whether `--help` was given.
    list: whether `--list` was given.

  >>> Arguments(None, pathlib.Path('runs/a'), None, help=True, list=False).workdir.name
  'a'
  """

  config: ml_collections.ConfigDict | None
  workdir: pathlib.Path
  cluster: Cluster | None
  help: bool
  list: bool


def parse(argv: list[str]) -> Arguments:
  """Parses the arguments; the first is the program's name.

  Raises:
    UserError: they are wrong, or the config file cannot be loaded.

  >>> arguments = parse(['launch.py', '--config', 'quadratic', '--workdir=runs/k5', '--config.period=5'])
  >>> arguments.config.task, arguments.config.period, arguments.workdir.name
  ('quadratic', 5, 'k5')
  """
  values = flags.FlagValues()
  name = flags.DEFINE_string('config', None, 'name or file', flag_values=values)
  workdir = flags.DEFINE_string('workdir', None, 'run directory', flag_values=values)
  distributed = flags.DEFINE_bool('distributed', False, 'JAX finds the other processes', flag_values=values)
  asks_for_help = flags.DEFINE_bool('help', False, 'show this help', short_name='h', flag_values=values)
  asks_for_list = flags.DEFINE_bool('list', False, 'list what a config can name', flag_values=values)
  address = flags.DEFINE_string('coordinator_address', None, 'HOST:PORT', flag_values=values)
  numbers = {
    field: flags.DEFINE_integer(field, Cluster._field_defaults[field], 'see Cluster', flag_values=values)
    for field in Cluster._fields
    if field != 'coordinator_address'
  }
  own, overrides = _split(argv)
  own = _parsed(values, own)
  config = _load(name.value) if name.value is not None else None
  if len(own) > 1:
    raise UserError(f'unexpected argument {own[1]!r}; usage: {USAGE}')
  if config is not None:
    _override(config, overrides)
  elif not (asks_for_help.value or asks_for_list.value):
    raise UserError(f'--config is missing; usage: {USAGE}')
  cluster = None
  if distributed.value or address.present or any(flag.present for flag in numbers.values()):
    given = {'coordinator_address': address, **numbers}
    cluster = Cluster._make(given[field].value for field in Cluster._fields)
    cluster.check()
  return Arguments(config, _run_directory(workdir.value, config), cluster, asks_for_help.value, asks_for_list.value)


def _split(argv):
  """The arguments without the overrides, and the overrides, each as one argument."""
  own, overrides, waits_for_value = [], [], False
  for arg in argv:
    if arg.startswith(('--config.', '-config.', '--noconfig.', '-noconfig.')):
      overrides.append(arg)
      waits_for_value = '=' not in arg and 'noconfig.' not in arg
    elif waits_for_value and not arg.startswith('--'):
      overrides[-1] += f'={arg}'
      waits_for_value = False
    else:
      own.append(arg)
      waits_for_value = False
  return own, overrides


def _parsed(values, argv):
  try:
    return values(argv)
  except (flags.Error, TypeError, ValueError) as error:
    raise UserError(f'{" ".join(str(error).split())}; usage: {USAGE}') from error


def _load(name):
  if not name.strip() or name.startswith(':'):
    raise UserError(f'--config={name!r}, must be a file or a name; usage: {USAGE}')
  try:
    config = load_config(name)
  except UserError:
    raise
  except Exception as error:  # a config file is a program, and can raise anything
    reason = ' '.join(str(error).split())
    raise UserError(f'config={name!r} cannot be loaded ({type(error).__name__}: {reason})') from error
  if not isinstance(config, ml_collections.ConfigDict):
    kind = type(config).__name__
    raise UserError(f'config={name!r}: get_config() returns a {kind}, must return a ConfigDict')
  if 'task' not in config:
    raise UserError(f"config={name!r} has no field 'task': build it on vrl_jax.task_config(TASK)")
  return config.lock()


def _override(config, overrides):
  chosen = [value for field, _, value in (o.partition('=') for o in overrides) if field.endswith('-config.algorithm')]
  if is_dotted(algorithm := chosen[-1] if chosen else config.get('algorithm')):
    set_algorithm(config, algorithm)  # its options become fields
  for override in overrides:
    field = override.partition('=')[0].partition('config.')[2]
    if field not in config.keys():
      close = difflib.get_close_matches(field, config.keys(), n=1)
      hint = f'did you mean {close[0]!r}?' if close else f'it has {", ".join(sorted(config.keys()))}'
      raise UserError(f'the config has no field {field!r}; {hint}')
  values, argv = flags.FlagValues(), ['launch.py', *overrides]
  config_flags.DEFINE_config_dict('config', config, flag_values=values, sys_argv=argv)
  _parsed(values, argv)


def _run_directory(workdir, config):
  if workdir is None:
    task = str(config.task).replace(':', '.') if config else ''
    # Microseconds, so that launches in the same second have different directories.
    return pathlib.Path('runs') / f'{datetime.datetime.now():%Y-%m-%d_%H-%M-%S.%f}_{task}'
  if not workdir.strip():
    raise UserError(f'--workdir={workdir!r}, must be a directory')
  return expand_home(workdir, '--workdir')
