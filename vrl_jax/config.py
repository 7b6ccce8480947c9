"""The fields that every run has, and the checks on them.

A config file builds on `default_config()` and adds its task's own fields.
"""

import inspect
import math
from typing import Any

import ml_collections
from ml_collections import config_dict

from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.batch_stats import POLICIES
from vrl_jax.data.feed import FEEDS
from vrl_jax.data.partition import PARTITIONS
from vrl_jax.errors import UserError
from vrl_jax.models.convolution import FORMS
from vrl_jax.optimizers import SCHEDULES
from vrl_jax.periods import check_stages

# Parameters of the factories that are no fields of their own: the run gives them, or no flag can tell them.
_NOT_OPTIONS = ('inner', 'axis_name', 'seed', 'corrected')


_KINDS = {bool: 'True or False', str: 'text', int: 'a whole number', float: 'a number', tuple: 'a tuple'}


def default_config() -> ml_collections.ConfigDict:
  """The common fields with their defaults, and a field for every option of an algorithm (`alpha`, `buffers`, …).

  >>> config = default_config()
  >>> config.algorithm, config.workers, config.partition
  ('vrl_sgd', 8, 'by_class')
  """
  config = ml_collections.ConfigDict()
  config.task = 'quadratic'
  config.algorithm = 'vrl_sgd'
  config.period = config_dict.placeholder(object)  # an int, or 'auto'
  config.first_period = config_dict.placeholder(int)  # None: as period; 1: VRL-SGD-W
  config.period_stages = ()  # (step, period) pairs: rounds from that step on have that period
  config.max_period = config_dict.placeholder(int)  # a number: the period doubles as the loss falls, up to it
  config.workers = 8
  config.devices = config_dict.placeholder(int)  # None: chosen
  config.epochs = config_dict.placeholder(float)  # epochs or steps, one of them
  config.steps = config_dict.placeholder(int)
  config.batch_size = 32  # of each worker
  config.optimizer = 'sgd'  # or 'adamw'
  config.learning_rate = 0.01
  config.schedule = 'constant'
  config.warmup_steps = 0
  config.momentum = 0.0
  config.nesterov = False
  config.weight_decay = 0.0
  config.clip_norm = config_dict.placeholder(float)  # of each worker's gradient, before everything else
  config.batch_stats = config_dict.placeholder(str)  # of a model with batch normalisation: average, local or sync
  config.seed = 0
  config.seeds = ()  # several: a sweep with a run for each
  config.eval_every = 1.0  # epochs
  config.log_every_step = False  # for small models: it measures, and so communicates, at every step
  config.init_epochs = 0.0  # of plain single-stream SGD before the start
  config.init_loss = config_dict.placeholder(float)  # that SGD ends when the train loss has fallen to it
  config.partition = 'by_class'
  config.dirichlet_alpha = 0.5
  config.similarity_percent = 10.0
  config.feed = 'auto'
  config.conv_form = 'auto'  # 'xla' or 'patches', of models that have both
  config.unroll = config_dict.placeholder(int)  # steps in one pass of a round's loop; None: chosen
  config.workers_at_once = config_dict.placeholder(int)  # of a device, in its gradients; None: chosen
  config.tile_bytes = config_dict.placeholder(int)  # of large matrices in a step; 0: no tiles; None: chosen
  config.steps_per_dispatch = config_dict.placeholder(int)  # at most; None: chosen
  config.checkpoint_every = 0  # rounds; 0: by time alone
  config.checkpoint_minutes = 5.0  # 0: by rounds alone
  config.x64 = False
  config.compilation_cache = True
  config.tensorboard = False  # the metrics to WORKDIR/tensorboard too
  config.wandb = False  # and to Weights & Biases
  for name, default in algorithm_options().items():
    config[name] = config_dict.placeholder(float) if default is None else default
  return config


def algorithm_options(algorithm: str | None = None) -> dict[str, Any]:
  """The options of one algorithm's factory, or of all of them, with their defaults.

  >>> algorithm_options('easgd'), 'alpha' in algorithm_options()
  ({'alpha': None}, True)
  """
  factories = ALGORITHMS.values() if algorithm is None else [ALGORITHMS[algorithm]]
  return {
    name: parameter.default
    for factory in factories
    for name, parameter in inspect.signature(factory).parameters.items()
    if name not in _NOT_OPTIONS
  }


def validate(config: ml_collections.ConfigDict) -> None:
  """Raises UserError, in one line with the value and the choices, for what no run can have.

  >>> config = default_config()
  >>> config.update(period=20, epochs=1.0, partition='by_clas')
  >>> validate(config)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: partition='by_clas', must be one of identical, by_class, dirichlet, similarity
  """
  _check_kinds(config)
  if config.get('seeds'):
    raise UserError(f'seeds={tuple(config.seeds)} are several runs: launch.py or vrl_jax.sweep.run_sweep runs them')
  choices = {'algorithm': ALGORITHMS, 'schedule': SCHEDULES, 'partition': PARTITIONS, 'feed': FEEDS, 'conv_form': FORMS}
  for name, known in choices.items():
    if config[name] not in known:
      raise UserError(f'{name}={config[name]!r}, must be one of {", ".join(known)}')
  if config.batch_stats is not None and config.batch_stats not in POLICIES:
    raise UserError(f'batch_stats={config.batch_stats!r}, must be one of {", ".join(POLICIES)}')
  if config.period != 'auto':
    _whole(config, 'period', 1, 'or "auto"')
  check_stages(config.period_stages)
  for name in (
    *('first_period', 'max_period', 'devices', 'steps'),
    *('unroll', 'workers_at_once', 'steps_per_dispatch'),
  ):
    if config[name] is not None:
      _whole(config, name, 1)
  if config.tile_bytes is not None:
    _whole(config, 'tile_bytes', 0)
  for name, least in (('workers', 1), ('batch_size', 1), ('seed', 0), ('warmup_steps', 0), ('checkpoint_every', 0)):
    _whole(config, name, least)
  for name, bits in (('steps', 31), ('seed', 32)):  # the types that JAX has for them
    if (config[name] or 0) >= 2**bits:
      raise UserError(f'{name}={config[name]}, must be less than 2^{bits}')
  if config.devices and config.workers % config.devices:
    raise UserError(f'workers={config.workers} cannot be divided over devices={config.devices}')
  for name in ('learning_rate', 'eval_every', 'dirichlet_alpha'):
    _number(config, name, positive=True)
  for name in ('weight_decay', 'momentum', 'checkpoint_minutes', 'init_epochs', 'similarity_percent'):
    _number(config, name)
  if config.similarity_percent > 100:
    raise UserError(f'similarity_percent={config.similarity_percent}, must be at most 100')
  if config.momentum >= 1:
    raise UserError(f'momentum={config.momentum}, must be at least 0 and less than 1')
  if config.nesterov and not config.momentum:
    raise UserError('nesterov=True needs momentum > 0')
  if (config.epochs is None) == (config.steps is None):
    raise UserError(f'epochs={config.epochs}, steps={config.steps}: give one of the two')
  for name in ('epochs', 'clip_norm', 'init_loss'):
    if config[name] is not None:
      _number(config, name, positive=True)
  if config.init_loss is not None and not config.init_epochs:
    raise UserError(f'init_loss={config.init_loss:g} needs init_epochs > 0, the most that the plain SGD may take')
  own = algorithm_options(config.algorithm)
  for name, default in algorithm_options().items():
    if name not in own and config[name] != default:
      takers = ', '.join(a for a in ALGORITHMS if name in algorithm_options(a))
      raise UserError(f'{name}={config[name]!r} means nothing to algorithm={config.algorithm!r}, only to {takers}')


def _check_kinds(config):
  """A config file, a sweep or a notebook can put anything into any field, or leave it out."""
  defaults = default_config()
  for name, default in defaults.items():
    if name not in config:
      if name == 'seeds':  # the runs of a sweep have none
        continue
      raise UserError(f'the config has no field {name!r}: build it on vrl_jax.config.default_config()')
    kind, value = defaults.get_type(name), config[name]
    fits = isinstance(value, float | int if kind is float else tuple | list if kind is tuple else kind)
    if isinstance(value, bool) and kind not in (bool, object):
      fits = False
    if not fits and not (value is None and default is None):
      raise UserError(f'{name}={value!r}, must be {_KINDS[kind]}')


def _whole(config, name, least, otherwise=''):
  value = config[name]
  if isinstance(value, bool) or not isinstance(value, int) or value < least:
    raise UserError(f'{name}={value!r}, must be a whole number of at least {least} {otherwise}'.rstrip())


def _number(config, name, positive=False):
  value = config[name]
  valid = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
  if not valid or value < 0 or (positive and value == 0):
    raise UserError(f'{name}={value!r}, must be a number {"greater than" if positive else "of at least"} 0')
