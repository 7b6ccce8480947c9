"""`train_and_evaluate`: one run, from a config to its summary."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np

from vrl_jax.algorithms import Algorithm
from vrl_jax.cluster import consistency, processes
from vrl_jax.config.fields import complete, validate, without_algorithm
from vrl_jax.engine import devices
from vrl_jax.errors import Diverged
from vrl_jax.system.signals import StopRequest
from vrl_jax.tasks.check import check_task
from vrl_jax.tasks.task import Task
from vrl_jax.training import fingerprint
from vrl_jax.training.algorithm import check_algorithm
from vrl_jax.training.checkpoint import CheckpointWriter, host_shapes
from vrl_jax.training.experiment import Experiment, load_task, make_experiment
from vrl_jax.training.given import FILE, given_fingerprints, require_same_given
from vrl_jax.training.log_points import LogSteps
from vrl_jax.training.metrics import Evaluator
from vrl_jax.training.progress import show_progress
from vrl_jax.training.restore_together import restore_for_all
from vrl_jax.training.run_directory import RunDirectory
from vrl_jax.training.trainer import Start, Trainer
from vrl_jax.training.writers import open_writers, require_packages


def train_and_evaluate(
  config: ml_collections.ConfigDict,
  workdir: str | os.PathLike,
  stop: StopRequest | None = None,
  *,
  task: Task | None = None,
  algorithm: Algorithm | None = None,
  show_data: Callable[[str], None] = print,
) -> dict[str, Any]:
  """Trains what a config describes; resumes from the last checkpoint if there is one.

  Args:
    config: a complete config (`vrl_jax.task_config` or `vrl_jax.load_config`).
    workdir: the run directory, for config.json, metrics.jsonl, summary.json, partition.json and checkpoints/.
    stop: from `vrl_jax.system.signals.watched_stop_requests`, if the caller handles signals. By default SIGTERM and
      SIGINT stop the training after the current round.
    task: the task to train, instead of making it from the config; `config.task` is then only its name. A run can be
      resumed only with a task that has the same data, initial parameters, loss and metrics.
    algorithm: the algorithm with its inner optimizer, instead of making it from the config; `config.algorithm` is then only
      its name, and the fields of the optimizer, its schedule and the algorithm's options are ignored and not stored. A
      run can be resumed only with an algorithm that has the same jaxprs.
    show_data: receives the table of examples per worker and class; `run_sweep` prints equal tables once.

  Returns:
    The content of summary.json: the last log line, `status` and `resumed_from_step`.

  Raises:
    UserError: bad input. Its sub-class Diverged: a loss that is not finite.
    Interrupted: SIGTERM or SIGINT was received; the same call resumes the run.

  >>> import contextlib, io, tempfile
  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('quadratic')
  >>> config.steps = 200
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   summary = train_and_evaluate(config, workdir)
  >>> summary['status'], summary['communications'], summary['distance_to_optimum'] < 0.1
  ('finished', 10, True)
  """
  began = time.perf_counter()
  config = complete(config) if algorithm is None else without_algorithm(config)
  validate(config, given_algorithm=algorithm is not None)
  consistency.require_same(fingerprint.run_fields(config))
  require_packages(config)
  devices.prepare_devices(config.devices, workers=config.workers, devices_per_worker=config.devices_per_worker)
  with contextlib.ExitStack() as stack:
    stack.enter_context(jax.enable_x64(config.x64))
    stack.enter_context(np.errstate(over='ignore', invalid='ignore'))  # divergence is reported by Diverged
    handled, stop = stop is not None, stop or StopRequest()
    stop.check()
    directory = stack.enter_context(RunDirectory.open(workdir, config))
    task, fingerprints = check_given(config, task, algorithm)
    require_same_given(directory.path, fingerprints)
    if directory.summary and directory.summary['status'] == 'finished':
      print(f'{directory.path}: already finished at step {directory.summary["step"]}')
      return directory.summary
    if directory.summary and directory.summary['status'] == 'diverged':
      processes.wait_for_all()
      raise Diverged(directory.summary['message'], everywhere=True)
    with directory.locked():  # it can compute initial weights for long, and stores them
      experiment = make_experiment(config, directory.shared, directory.path, stop, task=task, algorithm=algorithm)
    evaluator = Evaluator(experiment)
    start = find_start(config, experiment, directory)
    print(experiment.describe(config, start.step))
    if data := experiment.describe_data():
      show_data(data)
    write = stack.enter_context(open_writers(config, directory.path, directory.metrics()))
    stop.check()
    if fingerprints:
      directory.write_json(FILE, fingerprints)
    directory.start_run()
    if not handled:
      stack.enter_context(stop.handles_signals())
    with (
      stop.deferred(),
      CheckpointWriter.open(directory.path, directory.locked_path, directory.is_seen_by_all()) as checkpoints,
      show_progress(total=experiment.periods.steps, initial=start.step) as progress,
    ):
      trainer = Trainer(
        config=config,
        experiment=experiment,
        directory=directory,
        start=start,
        began=began,
        evaluator=evaluator,
        checkpoints=checkpoints,
        write=write,
        progress=progress,
        stop=stop,
      )
      return trainer.train()


def check_given(
  config: ml_collections.ConfigDict, task: Task | None, algorithm: Algorithm | None
) -> tuple[Task | None, dict[str, str]]:
  """Checks a task and an algorithm that were passed as objects.

  Returns:
    The task, which was loaded if the check of an algorithm needed it, and the fingerprints of the given objects.

  Raises:
    UserError: a given object cannot be used.

  >>> from vrl_jax.config.files import load_config
  >>> check_given(load_config('quadratic'), None, None)
  (None, {})
  """
  if task is not None:
    check_task(task, config.batch_size, 'task')
  loaded, params = task, None
  if algorithm is not None:
    loaded = load_task(config) if task is None else task
    params = jax.eval_shape(loaded.init, jax.random.key(config.seed))
    check_algorithm(config, algorithm, params, given=True)
  return loaded, given_fingerprints(task, algorithm, params, batch_size=config.batch_size, workers=config.workers)


def find_start(config: ml_collections.ConfigDict, experiment: Experiment, directory: RunDirectory) -> Start:
  """Restores the newest checkpoint and removes the log lines after it; step 0 if there is no checkpoint.

  Raises:
    DataError: a checkpoint or metrics.jsonl is damaged. Nothing has changed on disk.

  >>> import pathlib, tempfile
  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('quadratic')
  >>> experiment = make_experiment(config, pathlib.Path('.'))
  >>> with tempfile.TemporaryDirectory() as workdir, RunDirectory.open(workdir, config) as directory:
  ...   find_start(config, experiment, directory).step
  0
  """
  state = experiment.engine.init(*experiment.model)
  directory.require_lock()  # to restore can rename a damaged checkpoint
  together = directory.is_seen_by_all()
  restored = restore_for_all(directory.path, host_shapes(state), directory.config, experiment.placement, together)
  step = 0 if restored is None else restored.step

  def read_log():
    expected = LogSteps(experiment.periods, experiment.log_interval, config.log_every_step)
    last_line = directory.keep_metrics_until(-1 if restored is None else step, expected)
    return last_line, expected.first_loss, expected.periods.stages

  last_line, first_loss, stages = processes.from_main(read_log)
  return Start(
    step=step,
    state=state if restored is None else restored.state,
    seconds=0.0 if restored is None else restored.metadata['seconds'],
    last_line=last_line,
    first_loss=first_loss,
    periods=experiment.periods._replace(stages=tuple((at, period) for at, period in stages)),
  )
