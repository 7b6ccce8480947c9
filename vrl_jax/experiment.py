"""Everything that a config describes, put together and ready to run."""

import inspect
import pathlib
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np

from vrl_jax import agreement, rounds
from vrl_jax.algorithms import ALGORITHMS, Algorithm, precede
from vrl_jax.arrangement import Arrangement, arrange
from vrl_jax.batch_stats import POLICIES
from vrl_jax.communication import Traffic, traffic, with_batch_stats
from vrl_jax.config import algorithm_options
from vrl_jax.data.feed import Feed
from vrl_jax.data.partition import PARTITIONS, Partition, class_table, format_class_table
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError
from vrl_jax.initial import initial_model
from vrl_jax.optimizers import clipping, inner_optimizer
from vrl_jax.periods import Periods, auto_period, make_periods
from vrl_jax.tasks.base import Task, make_task


class Experiment(NamedTuple):
  """A run before its first step.

  Attributes:
    task: model, loss, metrics and test data; the training data are in `feed`.
    partition: which worker has which examples.
    steps_per_epoch: of each worker.
    periods: the rounds.
    arrangement: the workers and their devices.
    feed: the examples on their way to the workers.
    algorithm: the algorithm with its inner optimizer.
    engine: the compiled rounds.
    traffic: what the algorithm sends.
    model: the start of every worker.

  >>> from vrl_jax.config_files import load_config
  >>> facts = make_experiment(load_config('quadratic'), pathlib.Path('.')).facts()
  >>> facts['total_steps'], facts['resolved_period'], facts['parameters']
  (400, 20, 1)
  """

  task: Task
  partition: Partition
  steps_per_epoch: int
  periods: Periods
  arrangement: Arrangement
  feed: Feed
  algorithm: Algorithm
  engine: rounds.Engine
  traffic: Traffic
  model: rounds.Model

  def class_table(self) -> dict[str, Any]:
    """How the classes are divided among the workers."""
    names = [str(name) for name in self.task.class_names]
    table = class_table(self.partition, self.task.labels, len(names))
    return {'table': table.tolist(), 'class_names': names, 'dropped': self.partition.dropped}

  def facts(self) -> dict[str, Any]:
    """Numbers that the config leaves open."""
    return {
      'total_steps': self.periods.steps,
      'resolved_period': self.periods.period,
      'steps_per_epoch': self.steps_per_epoch,
      'parameters': sum(x.size for x in jax.tree.leaves(self.model.params)),
      'devices_used': len(self.arrangement.devices),
    }

  def describe(self, config: ml_collections.ConfigDict, step: int) -> str:
    """What is about to run, for the terminal."""
    devices = self.arrangement.devices
    lines = [
      f'{config.algorithm} on {config.task}: {config.workers} workers on {len(devices)} {devices[0].platform} '
      f'device(s), {self.periods.steps} steps in rounds of {self.periods.period}, from step {step}'
    ]
    if len(set(self.task.labels.tolist())) < len(self.task.labels):
      table = self.class_table()
      lines.append(format_class_table(np.array(table['table']), table['class_names']))
      if self.partition.dropped:
        lines.append(f'{self.partition.dropped} examples are left out of training so that all shards are equal')
    return '\n'.join(lines)


def make_experiment(config: ml_collections.ConfigDict, shared: pathlib.Path) -> Experiment:
  """Builds what the config describes.

  Args:
    config: a whole config.
    shared: a folder for initial weights that other runs may share.

  >>> from vrl_jax.config_files import load_config
  >>> experiment = make_experiment(load_config('quadratic'), pathlib.Path('.'))
  >>> experiment.arrangement.workers, experiment.traffic.per_round, experiment.model.params
  (2, 4, array([1.], dtype=float32))
  """
  arrangement = arrange(config.workers, config.devices)
  task = make_task(config)
  check_batch_stats(config, task)
  if not arrangement.is_local:
    agreement.require_same(agreement.data_fields(task))
    arrangement.meet()
  partition = make_partition(config, task.labels)
  stream = index_stream(partition, config.batch_size, config.seed)
  steps_per_epoch = stream.steps_per_epoch
  steps = config.steps or max(1, round(config.epochs * steps_per_epoch))
  period = config.period
  if period == 'auto':
    identical = config.partition == 'identical'
    period = auto_period(config.algorithm, steps=steps, workers=config.workers, identical_data=identical)
  periods = make_periods(steps, period, config.first_period, config.period_stages, config.max_period)
  algorithm = make_algorithm(config, steps)
  check_algorithm(algorithm, jax.eval_shape(task.init, jax.random.key(config.seed)), config.workers)
  model = arrangement.from_main(initial_model(config, task, shared))
  feed = Feed(task.train, stream, arrangement, frozen=task.frozen, where=config.feed)
  stats = config.batch_stats
  choices = {'unroll': config.unroll, 'at_once': config.workers_at_once, 'tile_bytes': config.tile_bytes}
  engine = rounds.Engine(algorithm, task.loss, arrangement, feed.supply, seed=config.seed, batch_stats=stats, **choices)
  sends = traffic(algorithm, model.params)
  if stats:
    sends = with_batch_stats(sends, stats, task, config.batch_size)
  task = task._replace(train=None)  # the feed has what this process needs of it
  return Experiment(task, partition, steps_per_epoch, periods, arrangement, feed, algorithm, engine, sends, model)


def check_batch_stats(config: ml_collections.ConfigDict, task: Task) -> None:
  """Raises UserError unless a policy is named for batch statistics if, and only if, the model has some.

  >>> from vrl_jax.config_files import load_config
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


def make_algorithm(config: ml_collections.ConfigDict, steps: int) -> Algorithm:
  """The config's algorithm around its inner optimizer.

  >>> from vrl_jax.config_files import load_config
  >>> config = load_config('quadratic')
  >>> config.algorithm, config.alpha = 'easgd', 0.25
  >>> make_algorithm(config, steps=100).init(np.zeros(1))._fields
  ('inner', 'centre')
  """
  factory = ALGORITHMS[config.algorithm]
  options = {name: config[name] for name in algorithm_options(config.algorithm)}
  if 'seed' in inspect.signature(factory).parameters:
    options['seed'] = config.seed
  try:
    algorithm = factory(inner_optimizer(config, steps), axis_name=rounds.AXES, **options)
  except ValueError as error:
    raise UserError(f'algorithm={config.algorithm!r}: {error}') from error
  return precede(clipping(config), algorithm) if config.clip_norm else algorithm


def check_algorithm(algorithm: Algorithm, params: Any, workers: int) -> None:
  """Traces the algorithm with the run's number of workers, so that what it refuses is told before anything starts.

  >>> import optax
  >>> import vrl_jax
  >>> algorithm = vrl_jax.easgd(optax.sgd(0.1), alpha=0.5, axis_name=rounds.AXES)
  >>> check_algorithm(algorithm, np.zeros(1, np.float32), workers=2)
  >>> try:
  ...   check_algorithm(algorithm, np.zeros(1, np.float32), workers=8)
  ... except UserError as error:
  ...   print(error)
  alpha=0.5 with 8 workers gives N·alpha = 4 > 1, which is unstable: alpha must be at most 1/N = 0.125
  """

  def period(params):
    state = algorithm.init(params)
    _, state = algorithm.update(params, state, params)
    return algorithm.communicate(params, state)

  over_workers = jax.vmap(jax.vmap(period, axis_name=rounds.AXES[1]), axis_name=rounds.AXES[0])
  shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, workers, *x.shape), x.dtype), params)
  try:
    jax.eval_shape(over_workers, shapes)
  except ValueError as error:
    raise UserError(str(error)) from error


def make_partition(config: ml_collections.ConfigDict, labels: np.ndarray) -> Partition:
  """Divides the examples among the workers as the config says.

  >>> from vrl_jax.config import default_config
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
  }
  return PARTITIONS[config.partition](labels, config.workers, seed=config.seed, **own.get(config.partition, {}))
