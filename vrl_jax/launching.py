"""The command line: flags to a config, and mistakes to one line and an exit status."""

import datetime
import difflib
import io
import os
import pathlib
import shlex
import sys
import threading
import traceback
import warnings
from unittest import mock

import ml_collections
from absl import flags, logging
from ml_collections import config_flags

from vrl_jax import devices, hosts, joining, supervising
from vrl_jax.config_files import config_path
from vrl_jax.errors import UserError
from vrl_jax.joining import Cluster
from vrl_jax.runfolder import StorageError
from vrl_jax.signals import Interrupted, exit_at_second_interrupt, stop_requests

USAGE = 'launch.py (or vrl-jax) --config NAME_OR_FILE [--workdir DIR] [--config.FIELD=VALUE …]'
_SEVERAL = """
A run of several processes, on one machine or many: the same command for each, with --coordinator_address HOST:PORT
--num_processes N --process_id I (process 0 listens there), or with --distributed alone where JAX finds them by itself
(Cloud TPU, Slurm, Kubernetes, Open MPI). --heartbeat_timeout_seconds (10): a process silent for so long counts as dead.
--initialization_timeout (300): seconds to wait for all at the start."""
_ending = threading.Lock()  # whoever has it ends the process
_AT_ONCE = 'stopped at once; the same command goes on from the last checkpoint'


def main(argv: list[str]) -> int:
  """Runs launch.py with these arguments (the first is the program's name); returns the exit status.

  Returns:
    0; 2 for bad input, 3 for bad data or checkpoints, 4 if a run diverged, 5 if the folder cannot be written any more,
    6 if another process of the run has died, 128 + the signal's number if one stopped it.

  >>> main(['launch.py', '--config', 'nothing'])  # says on stderr what configs there are
  2
  """
  logging.set_verbosity(logging.FATAL)  # Orbax reports what the lines below report too, with tracebacks
  if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook's is none
    sys.stdout.reconfigure(line_buffering=True)  # so that a log file is complete even if the process is killed
  if supervised := supervising.is_supervised():
    supervising.be_supervised()
  workdir = None
  try:
    with exit_at_second_interrupt(_AT_ONCE), stop_requests():
      config, workdir, cluster = parse(argv)
      if cluster is None or supervised:
        workdir = join(cluster, workdir)
        run(config, workdir)
        joining.finish()
    if cluster is not None and not supervised:
      return supervising.supervise(cluster)
  except Interrupted as error:
    # JAX, torn out of a compilation, can crash when Python takes it down.
    told = f'{_one_line(error)}; to go on: {_command(argv, workdir)}'
    return _end(error, told, error.exit_status, at_once=argv is sys.argv)
  except UserError as error:
    return _end(error, f'error: {_one_line(error)}', error.exit_status)
  except OSError as error:
    return _end(error, f'error: {_one_line(error)}', StorageError.exit_status)
  except KeyboardInterrupt as error:
    return _end(error, _AT_ONCE, 130)
  except Exception as error:
    if hosts.count() == 1:
      raise
    if supervising.is_lost_contact(error):
      supervising.wait_for_the_end(cluster.heartbeat_timeout_seconds)
      error = supervising.LostContact(f'{hosts.name()}: lost contact to another process; {supervising.RESTART}')
      return _end(error, f'error: {error}', error.exit_status)
    return _end(error, traceback.format_exc().strip(), 1)
  return 0


def _end(error, told, status, at_once=False):
  """Says it here and to the other processes, if there are any; JAX must not wait for them then."""
  if hosts.count() > 1:
    _ending.acquire()
  print(told, file=sys.stderr)
  if hosts.count() > 1:
    if not hasattr(error, 'of_all'):
      hosts.tell_end(_one_line(error), status)
    hosts.leave()
  if at_once or hosts.count() > 1:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  return status


def console() -> int:
  """The command `vrl-jax`."""
  return main(sys.argv)


def _command(argv, workdir):
  """The command line that goes on with this run."""
  command = list(sys.orig_argv if argv is sys.argv else argv)
  given = any(arg.lstrip('-').split('=')[0] == 'workdir' for arg in argv[1:] if arg.startswith('-'))
  return shlex.join(command if given or workdir is None else [*command, f'--workdir={workdir}'])


def parse(argv: list[str]) -> tuple[ml_collections.ConfigDict, pathlib.Path, Cluster | None]:
  """Reads the flags.

  >>> config, workdir, _ = parse(['launch.py', '--config', 'quadratic', '--workdir=runs/k5', '--config.period=5'])
  >>> config.task, config.period, workdir.name
  ('quadratic', 5, 'k5')
  """
  argv = _with_config_file(argv)
  try:
    config, workdir, cluster, rest = _flags(argv)
  except Exception as error:  # a config file can raise anything at all
    raise UserError(_flag_trouble(argv, error)) from error
  if cluster is not None:
    cluster.check()
  if len(rest) > 1:
    raise UserError(f'unexpected argument {rest[1]!r}; usage: {USAGE}')
  if config is None:
    raise UserError(f'--config is missing; usage: {USAGE}')
  if 'task' not in config:
    raise UserError(f'the config has no field "task": build it on vrl_jax.config.default_config(); usage: {USAGE}')
  if workdir is not None and not workdir.strip():
    raise UserError(f'--workdir={workdir!r}, must be a folder')
  default = pathlib.Path('runs') / f'{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}_{config.task}'
  return config, pathlib.Path(workdir or default), cluster


def _with_config_file(argv):
  """The arguments with the config's name, if it is one, replaced by its file; `:argument` stays behind it."""
  argv = list(argv)
  for i, arg in enumerate(argv):
    flag, equals, value = arg.partition('=')
    if flag in ('--config', '-config') and (equals or i + 1 < len(argv)):
      file, *argument = (value if equals else argv[i + 1]).split(':', 1)
      if not file.strip():
        raise UserError(f'--config={file!r}, must be a file or a name; usage: {USAGE}')
      argv[i : i + (1 if equals else 2)] = [f'--config={":".join([str(config_path(file)), *argument])}']
      break
  return argv


def _flags(argv):
  values = flags.FlagValues()
  config = config_flags.DEFINE_config_file('config', None, 'the config file', lock_config=True, flag_values=values)
  workdir = flags.DEFINE_string('workdir', None, 'the folder of the run', flag_values=values)
  distributed = flags.DEFINE_bool('distributed', False, 'JAX finds the other processes', flag_values=values)
  several = {
    'coordinator_address': flags.DEFINE_string('coordinator_address', None, 'HOST:PORT', flag_values=values),
    **{
      name: flags.DEFINE_integer(name, Cluster._field_defaults[name], 'see Cluster', flag_values=values)
      for name in Cluster._fields[1:]
    },
  }
  asked_for_help = flags.DEFINE_bool('help', False, 'show this help', short_name='h', flag_values=values)
  sys.modules.pop('config_config', None)  # the last config of this process, which would shine through
  with mock.patch.object(sys, 'argv', argv):  # where ml_collections looks for --config.FIELD
    rest = values(argv)
  if asked_for_help.value:
    print(
      f'usage: {USAGE}\n\nEvery field of the config can be given as a flag. Without --workdir a dated folder in runs/ is used.\n{_SEVERAL}'
    )
    raise SystemExit(0)
  if config.value is not None and not isinstance(config.value, ml_collections.ConfigDict):
    str(config.value.task)  # a file that did not load says why when it is touched
  cluster = Cluster(**{name: flag.value for name, flag in several.items()})
  given = distributed.value or any(flag.present for flag in several.values())
  return config.value, workdir.value, cluster if given else None, rest


def _flag_trouble(argv, error):
  try:
    overrides = ('--config.', '-config.')
    config, *_ = _flags([arg for arg in argv if not arg.startswith(overrides)])
    known = sorted(config.keys())
    given = [arg.split('=')[0].split('config.')[1] for arg in argv if arg.startswith(overrides)]
    unknown = [name for name in given if name not in config]
  except Exception:  # then the file itself is at fault
    return _config_trouble(error)
  if not unknown:
    return _one_line(error)
  close = difflib.get_close_matches(unknown[0], known, n=1)
  hint = f'did you mean {close[0]!r}?' if close else f'it has {", ".join(known)}'
  return f'the config has no field {unknown[0]!r}; {hint}'


def _config_trouble(error):
  # ml_collections wraps what went wrong in several lines of where it looked, or in a whole traceback: the last counts.
  lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
  if isinstance(error, flags.Error) and len(lines) == 1:
    return lines[0]
  what = lines[-1].split('earlier failure to load: ')[-1]
  return f'the config file cannot be loaded: {what}'


def run(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
  """Runs a config, or its sweep, in `workdir`.

  >>> import tempfile
  >>> config, *_ = parse(['launch.py', '--config=quadratic', '--config.steps=40'])
  >>> config.compilation_cache = False
  >>> with tempfile.TemporaryDirectory() as workdir:  # doctest: +ELLIPSIS
  ...   run(config, pathlib.Path(workdir))
  workdir: ...
  vrl_sgd on quadratic: 2 workers on ... device(s), 40 steps in rounds of 20, from step 0
  step 40, train_loss 30023.1, distance_to_optimum 3.92081, communications 2, seconds ...
  """
  from vrl_jax.sweep import is_sweep, run_sweep
  from vrl_jax.train import Diverged, train_and_evaluate

  if config.get('compilation_cache'):
    devices.use_compilation_cache()
    # An entry that a kill left half written, or a folder that cannot be written: compiled anew, and no matter.
    warnings.filterwarnings('ignore', 'Error (reading|writing) persistent compilation cache')
  print(f'workdir: {workdir}')
  if is_sweep(config):
    diverged = run_sweep(config, workdir).diverged
    if diverged:
      message = f'{workdir}: {len(diverged)} of the runs diverged: {"; ".join(diverged)}'
      if not config.get('may_diverge'):
        raise hosts.of_all(Diverged(message))
      print(message)
  else:
    summary = train_and_evaluate(config, workdir)
    shown = ('step', 'train_loss', 'test_accuracy', 'distance_to_optimum', 'communications', 'seconds')
    print(', '.join(f'{name} {summary[name]:.6g}' for name in shown if summary.get(name) is not None))


def join(cluster: Cluster | None, workdir: pathlib.Path) -> pathlib.Path:
  """Joins the other processes, if there are any; returns the folder, which is process 0's.

  >>> join(None, pathlib.Path('runs/a')).name  # nobody to join
  'a'
  """
  if cluster is None:
    return workdir
  joining.join(cluster)
  hosts.listen(_another_ended)
  if not hosts.is_main():
    print(f'{hosts.name()}: joined; process 0 writes the log')
    sys.stdout = open(os.devnull, 'w')
  return pathlib.Path(hosts.from_main(lambda: str(workdir)))


def _another_ended(message, status):
  _end(message, f'error: {hosts.name()}: {message}', status)


def _one_line(error):
  text = ' '.join(str(error).split())
  return text or type(error).__name__
