"""Trains a run from its start or checkpoint to the last step: dispatches, logs, saves checkpoints, stops on request."""

import functools
import math
import signal
import sys
import time
from typing import Any, NamedTuple

import jax
import ml_collections

from vrl_jax.cluster import processes
from vrl_jax.config.fields import describes_algorithm
from vrl_jax.engine.periods import Periods
from vrl_jax.engine.placement import first_copy
from vrl_jax.errors import Diverged, Interrupted
from vrl_jax.system.signals import StopRequest
from vrl_jax.training.checkpoint import CheckpointWriter
from vrl_jax.training.experiment import Experiment
from vrl_jax.training.extension import longer_runs_have, obstacle
from vrl_jax.training.log_points import Pacer, Segment, segments, steps_per_dispatch
from vrl_jax.training.metrics import Evaluator
from vrl_jax.training.parts import are_finite
from vrl_jax.training.profile import StepProfiler
from vrl_jax.training.progress import Progress
from vrl_jax.training.run_directory import RunDirectory
from vrl_jax.training.writers import Write


class Start(NamedTuple):
  """The point at which a process starts to train: step 0, or the step of a checkpoint.

  Attributes:
    step: the number of steps done.
    state: the state of all workers, on the devices.
    seconds: the training time so far.
    last_line: the last log line so far; None if there is none.
    first_loss: the training loss of the first log line; NaN if there is none.
    periods: the rounds, as far as the log lines so far determine them.

  >>> from vrl_jax.engine.periods import make_periods
  >>> Start(0, None, seconds=0.0, last_line=None, first_loss=math.nan, periods=make_periods(steps=40, period=5)).step
  0
  """

  step: int
  state: Any
  seconds: float
  last_line: dict[str, Any] | None
  first_loss: float
  periods: Periods


class Trainer:
  """A run in progress."""

  def __init__(
    self,
    *,
    config: ml_collections.ConfigDict,
    experiment: Experiment,
    directory: RunDirectory,
    start: Start,
    began: float,
    evaluator: Evaluator,
    checkpoints: CheckpointWriter,
    write: Write,
    progress: Progress,
    stop: StopRequest,
  ):
    """Starts at `start`.

    Args:
      config: a complete config.
      experiment: made from the config.
      directory: the run directory, in which the run has been started.
      start: where to start.
      began: the `time.perf_counter` at which this process began with the run.
      evaluator: makes the log lines.
      checkpoints: writes the checkpoints.
      write: sends log lines to the optional writers.
      progress: shows the steps done.
      stop: the signals that end the run early.
    """
    self._config = config
    self._experiment = experiment
    self._engine = experiment.engine
    self._directory = directory
    self._evaluator = evaluator
    self._checkpoints = checkpoints
    self._write = write
    self._progress = progress
    self._stop = stop
    self._stop_flag = processes.Flag()
    self._profiler = StepProfiler(tuple(config.profile_steps), directory)
    self._pacers: dict[int, Pacer] = {}
    self._state = start.state
    self._last_line = start.last_line
    self._first_loss = start.first_loss
    self._periods = start.periods
    self._step = self._saved_step = self._resumed_from_step = start.step
    self._rounds = self._saved_rounds = self._periods.rounds_before(start.step)
    self._began = began - start.seconds
    self._saved_at = time.monotonic()
    self._saving_seconds = 0.0
    self._longer_runs_have_it = True  # the current state

  def train(self) -> dict[str, Any]:
    """Trains until the last step; returns the summary.

    Raises:
      Diverged: a loss or parameter is not finite.
      Interrupted: a signal was received; a checkpoint has been saved.
    """
    steps = self._experiment.periods.steps
    self._profiler.require_in(steps)
    self._directory.write_json('partition.json', self._experiment.class_table())
    if self._last_line is None:
      self._log(self._evaluator.log_line(0, 0, self._engine.consensus(self._state)))
    with self._profiler:
      while self._step < steps:
        segment = next(segments(self._periods, self._experiment.log_interval, self._step))
        if self._config.log_every_step:
          self._before_logged_round(segment.logged[0])
          self._traced_round(*segment.logged)
        else:
          self._segment(segment)
        self._save_or_stop()
    if self._saved_step < self._step:
      self._save()
    self._wait_for_checkpoint()
    return self._write_summary('finished')

  def _segment(self, segment: Segment) -> None:
    """Runs the plain rounds and the measured one, and logs."""
    assert self._last_line is not None  # of step 0
    first_step, began, overhead = self._step, time.perf_counter(), self._overhead_seconds()
    for start, length, count in segment.plain:
      self._plain_rounds(start, length, count)
    start, length = segment.logged
    self._before_logged_round(start)
    self._profiler.before(start, length, self._state)
    self._state, measured = self._engine.measure(self._state, self._experiment.feed.items(start, length, 1))
    scalars = jax.tree.map(lambda x: float(x[0]), first_copy(measured))  # blocks until the round is done
    seconds = time.perf_counter() - began - (self._overhead_seconds() - overhead)
    self._advance(length)
    scalars['step_loss'] = scalars.pop('loss_sum') / (self._step - self._last_line['step'])
    scalars['examples_per_second'] = self._examples(self._step - first_step) / seconds
    self._log(self._evaluator.log_line(self._step, self._rounds, self._engine.consensus(self._state), scalars))

  def _before_logged_round(self, start: int) -> None:
    """Saves a checkpoint before the last round if a longer run would not have that round, so that it can be extended."""
    is_last = start + self._periods.length(start) == self._experiment.periods.steps
    if not is_last or obstacle(self._config) or longer_runs_have(self._periods, self._experiment.log_interval, start):
      return
    if self._saved_step < start or start == 0:
      self._save()
    self._longer_runs_have_it = False

  def _plain_rounds(self, start: int, length: int, count: int) -> None:
    """Dispatches `count` rounds; each dispatch is prepared while the previous one runs."""
    most_steps = steps_per_dispatch(self._config.steps_per_dispatch, self._experiment.feed.on_device)
    capacity = max(1, most_steps // length)
    pacer = self._pacers.setdefault(length, Pacer(capacity))
    pending, noted = None, time.perf_counter()
    while count:
      most = min(count, self._rounds_to_checkpoint(), self._profiler.rounds(start, length))
      rounds = processes.from_main(functools.partial(pacer.rounds, most)) if capacity > 1 else 1
      items = self._experiment.feed.items(start, length, rounds, capacity)
      overhead = self._overhead_seconds()
      self._profiler.before(start, rounds * length, self._state)
      self._state, token = self._engine.run(self._state, items, rounds)
      if pending is None:
        noted += self._overhead_seconds() - overhead
      else:
        pending[0].block_until_ready()
        now = time.perf_counter()
        pacer.note(pending[1], now - noted)
        noted = now
      pending = token, rounds
      start, count = start + rounds * length, count - rounds
      self._advance(rounds * length)
      self._save_or_stop()

  def _traced_round(self, start: int, length: int) -> None:
    """Runs one round and logs every step of it."""
    began, overhead = time.perf_counter(), self._overhead_seconds()
    items = self._experiment.feed.items(start, length, 1)
    self._profiler.before(start, length, self._state)
    self._state, (traced, models) = self._engine.trace(self._state, items)
    scalars = jax.tree.map(lambda x: x[0], first_copy(traced))
    rate = self._examples(length) / (time.perf_counter() - began - (self._overhead_seconds() - overhead))
    scalars['step_loss'] = scalars.pop('loss_sum')
    for t in range(length):
      of_step = {name: float(values[t]) for name, values in scalars.items()} | {'examples_per_second': rate}
      model, rounds = self._evaluator.model_at_step(models, t), self._rounds + int(t == length - 1)
      self._log(self._evaluator.log_line(start + t + 1, rounds, model, of_step))
    self._advance(length)

  def _examples(self, steps: int) -> int:
    return steps * self._config.workers * self._config.batch_size

  def _overhead_seconds(self) -> float:
    """The seconds spent on compilation and checkpoints."""
    return self._engine.compile_seconds + self._saving_seconds

  def _seconds(self) -> float:
    """The seconds since the run began, summed over its resumptions."""
    return time.perf_counter() - self._began

  def _advance(self, steps: int) -> None:
    self._rounds += self._periods.rounds_between(self._step, self._step + steps)
    self._step += steps
    self._progress.update(steps)
    self._profiler.after(self._step, self._state)

  def _log(self, line: dict[str, Any]) -> None:
    line = processes.from_main(lambda: line | {'seconds': round(self._seconds(), 3)})
    finite = all(math.isfinite(line[name] or 0.0) for name in ('train_loss', 'step_loss', 'consensus_distance'))
    before, self._last_line = self._last_line, line
    self._directory.append_metrics([line])
    self._write(line)
    if not finite:
      self._raise_diverged(line['step'], before)
    if before is None:
      self._first_loss = line['train_loss']
    self._periods = self._periods.after_loss(line['step'], line['train_loss'], self._first_loss)
    if line['step']:
      self._progress.note(f'train loss {line["train_loss"]:.4g}, {line["communications"]:,} communications')

  def _raise_diverged(self, step: int, before: dict[str, Any] | None) -> None:
    last = f'last finite train loss {before["train_loss"]:.4g} at step {before["step"]}' if before else 'from the start'
    kept = f'; the checkpoint of step {self._saved_step} is kept' if self._saved_step else ''
    rate = f'learning_rate={self._config.learning_rate:g}, ' if describes_algorithm(self._config) else ''
    message = (
      f'{self._directory.path}: {self._config.algorithm} diverged by step {step} ({rate}period='
      f'{self._experiment.periods.period}; {last}): try a smaller learning_rate, a shorter period or clip_norm{kept}'
    )
    self._write_summary('diverged', message=message)
    processes.wait_for_all()
    raise Diverged(message, everywhere=True)

  def _rounds_to_checkpoint(self) -> int:
    every = self._config.checkpoint_every
    return every - self._rounds % every if every else sys.maxsize

  def _save_or_stop(self) -> None:
    """Between two dispatches: saves a checkpoint if one is due, and stops if a process has received a signal."""
    every, minutes = self._config.checkpoint_every, self._config.checkpoint_minutes
    due = every and self._rounds // every > self._saved_rounds // every
    due = due or (minutes and time.monotonic() - self._saved_at >= 60 * minutes)
    self._stop_flag.set(self._stop.signum)
    due, signum = processes.from_main(lambda: (bool(due and self._saved_step < self._step), self._stop_flag.get()))
    if due:
      self._save()
      self._stop_flag.set(self._stop.signum)  # a signal may have come in the meantime
      signum = processes.from_main(self._stop_flag.get)
    if signum and self._step < self._experiment.periods.steps:
      if self._saved_step < self._step:
        self._save()
      self._wait_for_checkpoint()
      self._write_summary('interrupted')
      stopped = f'{self._directory.path}: stopped by {signal.Signals(signum).name}'
      processes.wait_for_all()
      message = f'{stopped}; will resume from step {self._saved_step} of {self._experiment.periods.steps}'
      raise Interrupted(message, signum, everywhere=True)

  def _save(self) -> None:
    """Starts to write a checkpoint of the current state, if that is finite.

    If it is not, the next log point ends the run, and the previous checkpoint stays the newest.
    """
    jax.block_until_ready(self._state)
    began = time.perf_counter()
    state = self._checkpoints.host_copy(self._state, self._experiment.placement)
    if all(processes.collect(are_finite(state and state.params))):
      self._wait_for_checkpoint()
      self._directory.sync_metrics()
      metadata = {
        'seconds': self._seconds(),
        'train_loss': self._last_line['train_loss'] if self._last_line else None,
        'config': self._directory.config,
        'data': self._experiment.data,
        'longer_runs_have_it': self._longer_runs_have_it,
      }
      with self._directory.locked():
        self._checkpoints.save(self._step, state, metadata)
      self._saved_step, self._saved_rounds, self._saved_at = self._step, self._rounds, time.monotonic()
    self._saving_seconds += time.perf_counter() - began

  def _wait_for_checkpoint(self) -> None:
    with self._directory.locked():
      self._checkpoints.wait()

  def _write_summary(self, status: str, **more: Any) -> dict[str, Any]:
    line = self._last_line or {'step': self._step}
    summary = line | {'status': status, 'resumed_from_step': self._resumed_from_step} | self._experiment.facts() | more
    self._directory.write_json('summary.json', summary)
    return summary
