"""Builds everything that a config describes: task, partition, feed, algorithm, engine and initial model."""

import functools
import pathlib
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np

from vrl_jax.accounting.theory import auto_period
from vrl_jax.accounting.traffic import Traffic, traffic, with_batch_stats
from vrl_jax.algorithms import Algorithm
from vrl_jax.cluster import consistency, processes
from vrl_jax.config.dotted import is_dotted
from vrl_jax.data.class_table import class_table, format_class_table
from vrl_jax.data.partition import PARTITIONS, Partition
from vrl_jax.data.stream import index_stream
from vrl_jax.engine.batch_stats import POLICIES
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Feed, Supply
from vrl_jax.engine.periods import Periods, make_periods
from vrl_jax.engine.placement import Placement, place_workers
from vrl_jax.engine.state import Model
from vrl_jax.errors import UserError
from vrl_jax.system.signals import StopRequest
from vrl_jax.tasks.check import check_task
from vrl_jax.tasks.precision import with_precision
from vrl_jax.tasks.task import Task, make_task
from vrl_jax.training import fingerprint
from vrl_jax.training.algorithm import check_algorithm, check_delay, check_option_names, make_algorithm
from vrl_jax.training.initial_weights import initial_model


class Experiment(NamedTuple):
  """A run before its first step.

  Attributes:
    task: model, loss, metrics and test data; the training data are in `feed`.
    partition: which worker has which examples.
    steps_per_epoch: steps of each worker in one epoch.
    log_interval: steps between two log points.
    periods: the rounds.
    placement: the workers and their devices.
    feed: supplies the workers with examples.
    algorithm: the algorithm with its inner optimizer.
    engine: the compiled rounds.
    traffic: what the algorithm sends.
    model: the initial model of every worker.
    data: type, shape and checksum of each array of the task.

  >>> from vrl_jax.config.files import load_config
  >>> facts = make_experiment(load_config('quadratic'), pathlib.Path('.')).facts()
  >>> facts['total_steps'], facts['resolved_period'], facts['parameters']
  (400, 20, 1)
  """

  task: Task
  partition: Partition
  steps_per_epoch: int
  log_interval: float
  periods: Periods
  placement: Placement
  feed: Feed
  algorithm: Algorithm
  engine: Engine
  traffic: Traffic
  model: Model
  data: dict[str, str]

  def class_table(self) -> dict[str, Any]:
    """The number of examples of each class that each worker has."""
    labels, names = self.task.labels, [str(name) for name in self.task.class_names]
    if not names:  # the labels need not be numbered without gaps
      found, labels = np.unique(labels, return_inverse=True)
      names = [str(label) for label in found]
    table = class_table(self.partition, labels, len(names))
    of_class = {'table': table.tolist(), 'class_names': names, 'dropped': self.partition.dropped}
    return of_class | ({'weights': self.partition.example_weights.tolist()} if self.partition.is_unequal else {})

  def facts(self) -> dict[str, Any]:
    """Numbers that the config leaves open, for summary.json."""
    return {
      'total_steps': self.periods.steps,
      'resolved_period': self.periods.period,
      'steps_per_epoch': self.steps_per_epoch,
      'parameters': sum(x.size for x in jax.tree.leaves(self.model.params)),
      'devices_used': len(self.placement.devices),
      'devices_per_worker': self.placement.devices_per_island,
    }

  def describe(self, config: ml_collections.ConfigDict, step: int) -> str:
    """A line for the terminal about a run that starts at `step`."""
    return (
      f'{config.algorithm} on {config.task}: {config.workers} workers on {self._devices()}, '
      f'{self.periods.steps} steps in rounds of {self.periods.period}, from step {step}'
    )

  def _devices(self) -> str:
    placement, number = self.placement, len(self.placement.devices)
    size, idle = placement.devices_per_island, jax.device_count() - number
    islands = f' in islands of {size} ({placement.island})' if size > 1 else ''
    return f'{number} {placement.platform} device(s){islands}' + (f' ({idle} idle)' if idle else '')

  def describe_data(self) -> str:
    """The table of examples per worker and class, and how many are left out, or how they count."""
    lines = []
    if 1 < len(set(self.task.labels.tolist())) < len(self.task.labels):
      table = self.class_table()
      lines.append(format_class_table(np.array(table['table']), table['class_names']))
    if self.partition.dropped:
      lines.append(f'{self.partition.dropped} examples are left out of training so that all shards are equal')
    if self.partition.is_unequal:
      sizes, weights = self.partition.sizes, self.partition.example_weights
      lines.append(
        f'shards of {sizes.min()} to {sizes.max()} examples: every worker counts the same, so that an example counts '
        f'{weights.min():.3g} to {weights.max():.3g} times'
      )
    return '\n'.join(lines)


def make_experiment(
  config: ml_collections.ConfigDict,
  shared: pathlib.Path,
  workdir: pathlib.Path | None = None,
  stop: StopRequest | None = None,
  *,
  task: Task | None = None,
  algorithm: Algorithm | None = None,
) -> Experiment:
  """Builds what the config describes.

  Args:
    config: a complete config.
    shared: the directory of the initial weights, which other runs may share.
    workdir: the run directory; its checkpoints must be of the same data. None if there is none.
    stop: ends the computation of the initial weights, which can take long.
    task: a checked task to use instead of the one that the config names.
    algorithm: a checked algorithm to use instead of the one that the config describes.

  Raises:
    UserError: the config does not describe an experiment, or the data are not those of the checkpoints.

  >>> from vrl_jax.config.files import load_config
  >>> experiment = make_experiment(load_config('quadratic'), pathlib.Path('.'))
  >>> experiment.placement.workers, experiment.traffic.per_round, experiment.model.params
  (2, 4, array([1.], dtype=float32))
  """
  placement = place_workers(
    config.workers,
    config.devices,
    devices_per_worker=config.devices_per_worker,
    island=config.island,
    batch_size=config.batch_size,
  )
  task = load_task(config) if task is None else task
  check_batch_stats(config, task)
  data = fingerprint.data_fields(task)
  if not placement.is_local:
    consistency.require_same(data)
    placement.connect_processes()
  if workdir is not None:
    processes.from_main(functools.partial(fingerprint.require_same_data, workdir, data, config.data_dir))
  partition = make_partition(config, task.labels)
  stream = index_stream(partition, config.batch_size, config.seed)
  steps_per_epoch = stream.steps_per_epoch
  steps = config.steps or max(1, round(config.epochs * steps_per_epoch))
  if steps >= 2**31:
    raise UserError(f'epochs={config.epochs:g} is {steps} steps, must be less than 2^31')
  period = config.period
  if period == 'auto':
    identical = config.partition == 'identical'
    period = auto_period(config.algorithm, steps=steps, workers=config.workers, identical_data=identical)
  periods = make_periods(
    steps=steps,
    period=period,
    first_period=config.first_period,
    stages=config.period_stages,
    max_period=config.max_period,
  )
  params = jax.eval_shape(task.init, jax.random.key(config.seed))
  if algorithm is None:
    check_delay(config, periods)
    check_option_names(config)
    algorithm = make_algorithm(config, steps)
    check_algorithm(config, algorithm, params)
  model = placement.from_main(initial_model(config, task, shared, data, stop, placement))
  task = with_precision(task, config.compute_dtype, config.matmul_precision)  # not for the common initial weights
  feed = Feed(task.train, stream, placement, frozen=task.frozen, where=config.feed)
  sends = traffic(algorithm, model.params, config.workers)
  if config.batch_stats:
    sends = with_batch_stats(sends, config.batch_stats, task, config.batch_size)
  return Experiment(
    task=task._replace(train=None),  # the feed holds the part of it that this process needs
    partition=partition,
    steps_per_epoch=steps_per_epoch,
    log_interval=1 if config.log_every_step else config.eval_every * steps_per_epoch,
    periods=periods,
    placement=placement,
    feed=feed,
    algorithm=algorithm,
    engine=make_engine(config, algorithm, task, placement, feed.supply),
    traffic=sends,
    model=model,
    data=data,
  )


def make_engine(
  config: ml_collections.ConfigDict, algorithm: Algorithm, task: Task, placement: Placement, supply: Supply
) -> Engine:
  """The engine of a config on a placement.

  >>> from vrl_jax.config.files import load_config
  >>> e = make_experiment(load_config('quadratic'), pathlib.Path('.'))
  >>> engine = make_engine(load_config('quadratic'), e.algorithm, e.task, place_workers(2, devices=1), e.feed.supply)
  >>> engine.state_shapes(*e.model).params.shape  # [devices, workers of a device, parameters]
  (1, 2, 1)
  """
  return Engine(
    algorithm,
    task.loss,
    placement,
    supply,
    seed=config.seed,
    workers_at_once=config.workers_at_once,
    tile_bytes=config.tile_bytes,
    batch_stats=config.batch_stats,
  )


def load_task(config: ml_collections.ConfigDict) -> Task:
  """The task that the config names; one from outside the package is checked.

  >>> from vrl_jax.config.files import load_config
  >>> load_task(load_config('quadratic')).class_names
  ['f1', 'f2']
  """
  task = make_task(config)
  return check_task(task, config.batch_size, f'task={config.task!r}') if is_dotted(config.task) else task


def check_batch_stats(config: ml_collections.ConfigDict, task: Task) -> None:
  """Raises UserError unless the config has a policy for batch statistics exactly if the model has batch statistics.

  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('quadratic')
  >>> config.batch_stats = 'sync'
  >>> check_batch_stats(config, make_task(config))
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: batch_stats='sync': the model of task='quadratic' has no batch statistics
  """
  if task.batch_stats and config.batch_stats is None:
    raise UserError(
      f'the model of task={config.task!r} has batch statistics: say what the workers do with them, '
      f'batch_stats={" or ".join(POLICIES)}'
    )
  if config.batch_stats is not None and not task.batch_stats:
    raise UserError(f'batch_stats={config.batch_stats!r}: the model of task={config.task!r} has no batch statistics')


def make_partition(config: ml_collections.ConfigDict, labels: np.ndarray) -> Partition:
  """Divides the examples among the workers as the config says.

  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> config.update(workers=2, partition='similarity', similarity_percent=50.0)
  >>> labels = np.repeat([0, 1], 4)
  >>> labels[make_partition(config, labels).shards]
  array([[1, 0, 0, 0],
         [1, 1, 0, 1]])
  """
  if config.partition not in PARTITIONS:
    raise UserError(f'partition={config.partition!r}, must be one of {", ".join(PARTITIONS)}')
  own = {
    'dirichlet': {'alpha': config.dirichlet_alpha},
    'similarity': {'percent': config.similarity_percent},
    'dirichlet_unequal': {'alpha': config.dirichlet_alpha, 'least': config.batch_size},
  }
  return PARTITIONS[config.partition](labels, config.workers, seed=config.seed, **own.get(config.partition, {}))
