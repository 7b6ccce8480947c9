"""The training loop that launch.py, notebooks, tests and benchmarks all call."""

import contextlib
import functools
import math
import os
import sys
import time
from typing import Any

import jax
import ml_collections
import numpy as np
from tqdm import tqdm

from vrl_jax import agreement, devices, hosts
from vrl_jax.arrangement import first_copy
from vrl_jax.checkpoint import Checkpoints, on_host, to_host
from vrl_jax.config import validate
from vrl_jax.errors import UserError
from vrl_jax.experiment import Experiment, make_experiment
from vrl_jax.measuring import Measuring
from vrl_jax.periods import Periods
from vrl_jax.restore import restore_for_all
from vrl_jax.runfolder import RunFolder
from vrl_jax.schedule import Pacer, Segment, segments, steps_per_dispatch
from vrl_jax.signals import Interrupted, StopRequest, stop_requests
from vrl_jax.writers import Write, open_writers, require_packages


class Diverged(UserError):
  """The loss or the parameters are no longer finite.

  >>> Diverged('runs/a: the loss is not finite from step 40 on').exit_status
  4
  """

  exit_status = 4


def train_and_evaluate(config: ml_collections.ConfigDict, workdir: str | os.PathLike) -> dict[str, Any]:
  """Trains as the config says, from the last checkpoint if there is one.

  Args:
    config: a whole config (`vrl_jax.config.default_config` with a task's own fields).
    workdir: the run's folder; gets config.json, metrics.jsonl, summary.json, partition.json and checkpoints/.

  Returns:
    What summary.json holds: the last log line, `status` and `resumed_from_step`.

  Raises:
    UserError: bad input; one kind is Diverged, a loss that is not finite.
    Interrupted: SIGTERM or SIGINT came, and the run is ready to go on.

  >>> import contextlib, io, tempfile
  >>> from vrl_jax.config_files import load_config
  >>> config = load_config('quadratic')
  >>> config.steps = 200
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   summary = train_and_evaluate(config, workdir)
  >>> summary['status'], summary['communications'], summary['distance_to_optimum'] < 0.1
  ('finished', 10, True)
  """
  began = time.perf_counter()
  validate(config)
  agreement.require_same(agreement.run_fields(config))
  require_packages(config)
  devices.prepare(config.devices, workers=config.workers)
  with contextlib.ExitStack() as stack:
    stop = stack.enter_context(stop_requests())
    stack.enter_context(jax.enable_x64(config.x64))
    stack.enter_context(np.errstate(over='ignore', invalid='ignore'))  # a run that diverges says so in its own words
    with stop.deferred():
      folder = stack.enter_context(RunFolder(workdir, config))
    if folder.summary and folder.summary['status'] == 'finished':
      print(f'{folder.path}: finished already, at step {folder.summary["step"]}')
      return folder.summary
    if folder.summary and folder.summary['status'] == 'diverged':
      raise hosts.of_all(Diverged(folder.summary['message']))
    try:
      experiment = make_experiment(config, folder.shared)
    except AttributeError as error:
      if not isinstance(error.obj, ml_collections.ConfigDict):
        raise
      missing = f'task={config.task!r} needs the field {error.name!r}, which the config does not have'
      raise UserError(f'{missing}: begin with the config of that task') from error
    run = _Run(config, experiment, folder, began)
    with open_writers(config, folder.path, run.lines) as run.write:
      folder.claim()
      with stop.deferred(), Checkpoints(folder.path) as checkpoints:
        return run.to_the_end(checkpoints, stop)


class _Run:
  """Where a run stands, and what moves it on."""

  periods: Periods
  checkpoints: Checkpoints
  stop: StopRequest
  write: Write
  bar: tqdm

  def __init__(self, config: ml_collections.ConfigDict, experiment: Experiment, folder: RunFolder, began: float):
    """Restores the newest checkpoint, if there is one; nothing in the folder has changed if that fails."""
    self.config, self.folder, self.experiment = config, folder, experiment
    self.engine = experiment.engine
    self.measuring = Measuring(experiment)
    self.pacers: dict[int, Pacer] = {}
    self.stop_signal = hosts.Flag()
    self.state = self.engine.init(*experiment.model)
    self.interval = 1 if config.log_every_step else config.eval_every * experiment.steps_per_epoch
    self.step, self.began, self.saving_seconds = 0, began, 0.0
    restored = restore_for_all(folder.path, on_host(self.state), folder.config, experiment.arrangement)
    if restored is not None:
      self.step, self.state = restored.step, experiment.arrangement.split(restored.state)
      self.began -= restored.about['seconds']
    self.resumed_from_step = self.saved_step = self.step
    self.saved_at = time.monotonic()
    until = -1 if restored is None else self.step
    self.lines = folder.keep_metrics_until(until, self.log_points)
    print(experiment.describe(config, self.step))

  def periods_after(self, lines: list[dict[str, Any]]) -> Periods:
    """The rounds as far as these log lines tell: a period that follows the loss is known up to the next log point."""
    return self.experiment.periods.after((line['step'], line.get('train_loss', math.nan)) for line in lines)

  def log_points(self, until: int, lines: list[dict[str, Any]]) -> list[int]:
    """The steps up to `until` that have a log line, if `lines` are what was logged."""
    points = [0]
    for segment in segments(self.periods_after(lines), self.interval):
      if points[-1] >= until:
        break
      start, length = segment.logged
      points += range(start + 1, start + length + 1) if self.config.log_every_step else [start + length]
    return [point for point in points if point <= until]

  def to_the_end(self, checkpoints: Checkpoints, stop: StopRequest) -> dict[str, Any]:
    """Trains until the last step, or until a signal or a divergence ends it earlier."""
    self.checkpoints, self.stop = checkpoints, stop
    steps = self.experiment.periods.steps
    self.folder.write_json('partition.json', self.experiment.class_table())
    if not self.lines:
      self.log(self.measuring.line(0, 0, self.engine.consensus(self.state)))
    self.periods = self.periods_after(self.lines)
    quiet = not sys.stdout.isatty()
    with tqdm(total=steps, initial=self.step, unit='step', leave=False, disable=quiet) as self.bar:
      while self.step < steps:
        segment = next(segments(self.periods, self.interval, self.step))
        if self.config.log_every_step:
          self.traced_round(*segment.logged)
        else:
          self.segment(segment)
        self.periods = self.periods_after(self.lines)
        self.maintain()
    if self.saved_step < self.step:
      self.save()
    self.checkpoints.wait()
    return self.write_summary('finished')

  def segment(self, segment: Segment) -> None:
    """Runs the plain rounds and the measured one, and logs."""
    first_step, began, waste = self.step, time.perf_counter(), self.wasted()
    for start, length, count in segment.plain:
      self.plain_rounds(start, length, count)
    start, length = segment.logged
    self.state, scalars = self.engine.measure(self.state, self.experiment.feed.items(start, length, 1))
    scalars = jax.tree.map(lambda x: float(x[0]), first_copy(scalars))  # waits
    seconds = time.perf_counter() - began - (self.wasted() - waste)
    self.advance(length)
    scalars['step_loss'] = scalars.pop('loss_sum') / (self.step - self.lines[-1]['step'])
    scalars['examples_per_second'] = self.examples(self.step - first_step) / seconds
    rounds = self.periods.rounds_before(self.step)
    self.log(self.measuring.line(self.step, rounds, self.engine.consensus(self.state), scalars))

  def plain_rounds(self, start: int, length: int, count: int) -> None:
    """Dispatches `count` rounds; the next ones are prepared while the last are at work."""
    most = steps_per_dispatch(self.config.steps_per_dispatch, self.experiment.feed.on_device)
    capacity = max(1, most // length)
    pacer = self.pacers.setdefault(length, Pacer(capacity))
    pending, noted = None, time.perf_counter()
    while count:
      most = min(count, self.rounds_to_checkpoint())
      rounds = hosts.from_main(functools.partial(pacer.rounds, most)) if capacity > 1 else 1
      items = self.experiment.feed.items(start, length, rounds, capacity)
      waste = self.wasted()
      self.state, token = self.engine.run(self.state, items, rounds)
      if pending is None:
        noted += self.wasted() - waste
      else:
        pending[0].block_until_ready()
        now = time.perf_counter()
        pacer.note(pending[1], now - noted)
        noted = now
      pending = token, rounds
      start, count = start + rounds * length, count - rounds
      self.advance(rounds * length)
      self.maintain()

  def traced_round(self, start: int, length: int) -> None:
    """Runs one round and logs every step of it."""
    began, waste = time.perf_counter(), self.wasted()
    items = self.experiment.feed.items(start, length, 1)
    self.state, (scalars, models) = self.engine.trace(self.state, items)
    scalars = jax.tree.map(lambda x: x[0], first_copy(scalars))
    rate = self.examples(length) / (time.perf_counter() - began - (self.wasted() - waste))
    scalars['step_loss'] = scalars.pop('loss_sum')
    for t in range(length):
      now = {name: float(values[t]) for name, values in scalars.items()} | {'examples_per_second': rate}
      step = start + t + 1
      model = self.measuring.model_of_step(models, t)
      self.log(self.measuring.line(step, self.periods.rounds_before(step), model, now))
    self.advance(length)

  def examples(self, steps: int) -> int:
    return steps * self.config.workers * self.config.batch_size

  def wasted(self) -> float:
    """Seconds that are not training."""
    return self.engine.compile_seconds + self.saving_seconds

  def seconds(self) -> float:
    """Since the run began, summed over its resumptions."""
    return time.perf_counter() - self.began

  def advance(self, steps: int) -> None:
    self.step += steps
    self.bar.update(steps)

  def log(self, line: dict[str, Any]) -> None:
    line = hosts.from_main(lambda: line | {'seconds': round(self.seconds(), 3)})
    finite = all(math.isfinite(line[name] or 0.0) for name in ('train_loss', 'step_loss', 'consensus_distance'))
    before = self.lines[-1] if self.lines else None
    self.lines.append(line)
    self.folder.append_metrics([line])
    self.write(line)
    if not finite:
      self.diverged(line['step'], before)
    if line['step']:
      sent = line['communications']
      self.bar.set_postfix_str(f'loss {line["train_loss"]:.4g}, {sent} communications', refresh=False)

  def diverged(self, step: int, before: dict[str, Any] | None) -> None:
    """Ends the run."""
    last = f'last finite train loss {before["train_loss"]:.4g} at step {before["step"]}' if before else 'from the start'
    kept = f'; the checkpoint of step {self.saved_step} is kept' if self.saved_step else ''
    message = (
      f'{self.folder.path}: {self.config.algorithm} diverged by step {step} (learning_rate='
      f'{self.config.learning_rate:g}, period={self.experiment.periods.period}; {last}): '
      f'try a smaller learning_rate, a shorter period or clip_norm{kept}'
    )
    self.write_summary('diverged', message=message)
    raise hosts.of_all(Diverged(message))

  def rounds_to_checkpoint(self) -> int:
    every = self.config.checkpoint_every
    return every - self.periods.rounds_before(self.step) % every if every else sys.maxsize

  def maintain(self) -> None:
    """Between two dispatches: checkpoints when due, and stops when asked to."""
    rounds, every = self.periods.rounds_before, self.config.checkpoint_every
    due = every and rounds(self.step) // every > rounds(self.saved_step) // every
    minutes = self.config.checkpoint_minutes
    due = due or (minutes and time.monotonic() - self.saved_at >= 60 * minutes)
    self.stop_signal.raise_to(self.stop.signum)
    due, signum = hosts.from_main(lambda: (bool(due and self.saved_step < self.step), self.stop_signal.seen()))
    if due:
      self.save()
      self.stop_signal.raise_to(self.stop.signum)  # if it came meanwhile
      signum = hosts.from_main(self.stop_signal.seen)
    if signum and self.step < self.experiment.periods.steps:
      self.stop.signum = signum  # it may have come to another process
      if self.saved_step < self.step:
        self.save()
      self.checkpoints.wait()
      self.write_summary('interrupted')
      where = f'step {self.saved_step} of {self.experiment.periods.steps}'
      message = f'{self.folder.path}: stopped by {self.stop.name}; it goes on from {where}'
      raise hosts.of_all(Interrupted(message, self.stop.signum))

  def save(self) -> None:
    """Starts to write a checkpoint of the state as it is now."""
    jax.block_until_ready(self.state)
    began = time.perf_counter()
    state = to_host(self.experiment.arrangement.gather(self.state))
    if hosts.from_main(lambda: all(bool(np.isfinite(x).all()) for x in jax.tree.leaves(state.params))):
      self.folder.sync_metrics()
      about = {'seconds': self.seconds(), 'train_loss': self.lines[-1]['train_loss'], 'config': self.folder.config}
      self.checkpoints.save(self.step, state, about)
      self.saved_step, self.saved_at = self.step, time.monotonic()
    # else the next log point ends the run, and the last good checkpoint stays the newest
    self.saving_seconds += time.perf_counter() - began

  def write_summary(self, status: str, **more: Any) -> dict[str, Any]:
    line = self.lines[-1] if self.lines else {'step': self.step}
    summary = line | {'status': status, 'resumed_from_step': self.resumed_from_step, **self.experiment.facts(), **more}
    self.folder.write_json('summary.json', summary)
    return summary
