"""The command `launch.py` and `vrl-jax`: runs a config; errors become one line and an exit status."""

import contextlib
import functools
import os
import pathlib
import sys
import traceback
import warnings
from collections.abc import Iterator

import ml_collections
from absl import logging

from vrl_jax.cli.ending import Ending, one_line, resume_command
from vrl_jax.cli.flags import parse
from vrl_jax.cluster import processes, supervisor
from vrl_jax.cluster.join import Cluster, finish
from vrl_jax.cluster.join import join as join_cluster
from vrl_jax.engine import devices
from vrl_jax.errors import Diverged, Interrupted, LostContact, StorageError, UserError
from vrl_jax.system.signals import StopRequest, watched_stop_requests
from vrl_jax.system.streams import prepare_streams
from vrl_jax.training.orbax_errors import without_secondary_errors

_SHOWN = ('step', 'train_loss', 'test_accuracy', 'distance_to_optimum', 'communications', 'seconds')


def main(argv: list[str], stop: StopRequest | None = None) -> int:
  """Runs launch.py with these arguments (the first is the program's name).

  Args:
    argv: the command line.
    stop: the signals of this process, if they are handled already.

  Returns:
    The exit status: 0; 2 for bad input, 3 for bad data or checkpoints, 4 if a run diverged, 5 if the run directory
    cannot be written, 6 if another process of the run has died, 128 + the signal's number if a signal stopped it.

  >>> main(['launch.py', '--config', 'nothing'])  # lists the configs on stderr
  2
  """
  # Under load, secondary errors can come after the checkpoint writer has waited for them.
  with contextlib.nullcontext(stop) if stop else watched_stop_requests() as request, without_secondary_errors():
    return _main(argv, request)


def _main(argv, stop):
  logging.set_verbosity(logging.FATAL)  # Orbax logs, with tracebacks, what is reported in one line here
  if supervised := supervisor.is_supervised():
    supervisor.attach_to_parent()
  prepare_streams()
  ending, workdir, cluster = Ending(), None, None
  stop.end = functools.partial(ending.report, at_once=True)
  try:
    stop.check()
    config, workdir, cluster, asks_for_help, asks_for_list = parse(argv)
    if asks_for_list:
      from vrl_jax.cli.listing import list_text

      print(list_text())
    elif asks_for_help or config is None:
      from vrl_jax.cli.help import help_text

      print(help_text(config))
    elif cluster is None:
      run(config, workdir, stop)
    elif supervised:
      with _joined(cluster, workdir, ending) as workdir:
        run(config, workdir, stop)
    else:
      return supervisor.supervise(cluster, stop)
  except Interrupted as error:
    line = f'{one_line(error)}; to resume: {resume_command(argv, workdir)}'
    # JAX can crash in Python's clean-up if a compilation was interrupted.
    return ending.report(line, error.exit_status, at_once=argv is sys.argv, everywhere=error.everywhere)
  except UserError as error:
    # After a failed write Orbax and asyncio would print more errors in Python's clean-up.
    at_once = argv is sys.argv and isinstance(error, StorageError)
    return ending.report(f'error: {one_line(error)}', error.exit_status, at_once=at_once, everywhere=error.everywhere)
  except OSError as error:
    return ending.report(f'error: {one_line(error)}', StorageError.exit_status)
  except Exception as error:
    if cluster is None or processes.count() == 1:
      raise
    if supervisor.is_lost_contact(error):
      supervisor.wait_for_jax_to_abort(cluster.heartbeat_timeout_seconds)
      line = f'error: {processes.name()}: lost contact to another process; {supervisor.RESTART}'
      return ending.report(line, LostContact.exit_status)
    return ending.report(traceback.format_exc().strip(), 1)
  return 0


def run(config: ml_collections.ConfigDict, workdir: pathlib.Path, stop: StopRequest | None = None) -> None:
  """Runs a config or its sweep.

  Args:
    config: from a config file.
    workdir: the run directory.
    stop: see `vrl_jax.train_and_evaluate`.

  >>> import tempfile
  >>> config = parse(['launch.py', '--config=quadratic', '--config.steps=40']).config
  >>> config.compilation_cache = False
  >>> with tempfile.TemporaryDirectory() as workdir:  # doctest: +ELLIPSIS
  ...   run(config, pathlib.Path(workdir))
  workdir: ...
  vrl_sgd on quadratic: 2 workers on ... 40 steps in rounds of 20, from step 0
  step 40, train_loss 30023.1, distance_to_optimum 3.92081, communications 2, seconds ...
  """
  # Imported here, so that a mistake on the command line is reported before flax and Orbax are loaded.
  from vrl_jax.training.loop import train_and_evaluate
  from vrl_jax.training.sweep import is_sweep, run_sweep

  if config.get('compilation_cache'):
    devices.use_compilation_cache()
    # A damaged entry or a directory that cannot be written costs a compilation, and nothing else.
    warnings.filterwarnings('ignore', 'Error (reading|writing) persistent compilation cache')
  print(f'workdir: {workdir}')
  if not is_sweep(config):
    summary = train_and_evaluate(config, workdir, stop)
    print(', '.join(f'{name} {summary[name]:.6g}' for name in _SHOWN if summary.get(name) is not None))
    return
  diverged = run_sweep(config, workdir, stop).diverged
  if diverged:
    message = f'{workdir}: {len(diverged)} of the runs diverged: {"; ".join(diverged)}'
    if not config.get('may_diverge'):
      processes.wait_for_all()
      raise Diverged(message, everywhere=True)
    print(message)


@contextlib.contextmanager
def _joined(cluster: Cluster, workdir: pathlib.Path, ending: Ending) -> Iterator[pathlib.Path]:
  """Joins the other processes and leaves with them; yields the run directory, which process 0 chooses."""
  join_cluster(cluster)
  listener = processes.listen(ending.follow)
  with contextlib.ExitStack() as stack:
    if not processes.is_main():
      print(f'{processes.name()}: joined; process 0 writes the log')
      stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, 'w'))))
    yield pathlib.Path(processes.from_main(lambda: str(workdir)))
    finish(listener)
