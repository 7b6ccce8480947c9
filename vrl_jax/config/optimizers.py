"""From config fields to the inner optimizer."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax

from vrl_jax.config.dotted import is_dotted, user_code
from vrl_jax.config.factories import factory, fill_placeholders
from vrl_jax.errors import UserError

SCHEDULES: dict[str, Callable[[float, int], Any]] = {
  'constant': lambda rate, steps: rate,
  'linear': lambda rate, steps: optax.linear_schedule(rate, 0.0, steps),
  'cosine': lambda rate, steps: optax.cosine_decay_schedule(rate, steps),
}


def learning_rate(config: Any, steps: int) -> float | optax.Schedule:
  """The learning rate γ: a number if it is constant, else a schedule.

  With `warmup_steps` it rises linearly from 0 before the schedule starts. A schedule with a dotted path is what its
  factory returns for `schedule_kwargs`, in which the values 'learning_rate' and 'steps' stand for those of the run.

  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> config.update(learning_rate=0.1, schedule='cosine', warmup_steps=10)
  >>> rate = learning_rate(config, steps=110)
  >>> [round(float(rate(step)), 3) for step in (0, 5, 10, 60, 110)]
  [0.0, 0.05, 0.1, 0.05, 0.0]
  """
  _check_schedule_fields(config)
  if is_dotted(config.schedule):
    return _checked_schedule(config, factory('schedule', config, learning_rate=config.learning_rate, steps=steps)())
  if config.schedule not in SCHEDULES:
    raise UserError(f'schedule={config.schedule!r}, must be one of {", ".join(SCHEDULES)}')
  after = SCHEDULES[config.schedule](config.learning_rate, max(1, steps - config.warmup_steps))
  if not config.warmup_steps:
    return after
  after = optax.constant_schedule(after) if not callable(after) else after
  rise = optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
  return optax.join_schedules([rise, after], [config.warmup_steps])


def follows_length(fields: Mapping[str, Any]) -> bool:
  """Whether the learning rate of a config depends on the number of steps of the run.

  >>> follows_length({'schedule': 'constant'}), follows_length({'schedule': 'cosine'})
  (False, True)
  >>> follows_length({'schedule': 'optax.linear_schedule', 'schedule_kwargs': {'transition_steps': 'steps'}})
  True
  """
  if is_dotted(fields.get('schedule')):
    kwargs = fields.get('schedule_kwargs') or {}
    return fill_placeholders(kwargs, {'steps': None}) != fill_placeholders(kwargs, {})
  return fields.get('schedule', 'constant') != 'constant'


def _checked_schedule(config, schedule):
  if not callable(schedule):
    raise UserError(f'schedule={config.schedule!r} returns {schedule!r:.80}, must return a function of the step')
  with user_code(f'schedule={config.schedule!r}: its schedule'):
    value = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), 'int32'))
  if getattr(value, 'shape', None) != ():
    raise UserError(f'schedule={config.schedule!r}: its schedule returns {value!r:.80}, must return a number')
  return schedule


def _check_schedule_fields(config):
  _check_fields_of('schedule', config, ('warmup_steps',), SCHEDULES)


def _check_optimizer_fields(config):
  _check_fields_of('optimizer', config, ('momentum', 'nesterov', 'weight_decay'), OPTIMIZERS)


def _check_fields_of(field, config, names, builtin):
  """Raises UserError if fields are set that an optimizer or schedule with a dotted path does not have, or vice versa."""
  value, kwargs = getattr(config, field), f'{field}_kwargs'
  if is_dotted(value):
    for name in names:
      if other := getattr(config, name):
        raise UserError(
          f'{name}={other!r} is not an option of {field}={value!r} (only of {", ".join(builtin)}): reset it to '
          f'{type(other)()!r}, and give what {value} takes in {kwargs}'
        )
  elif given := getattr(config, kwargs, None):
    raise UserError(f'{kwargs}={dict(given)!r:.80} is not an option of {field}={value!r}, which has no dotted path')


def _sgd(config, rate):
  sgd = optax.sgd(rate, momentum=config.momentum or None, nesterov=config.nesterov)
  return optax.chain(optax.add_decayed_weights(config.weight_decay), sgd) if config.weight_decay else sgd


def _adamw(config, rate):
  if config.momentum:
    raise UserError(f"momentum={config.momentum} is not an option of optimizer='adamw' (only of sgd)")
  return optax.adamw(rate, weight_decay=config.weight_decay)


OPTIMIZERS = {'sgd': _sgd, 'adamw': _adamw}


def inner_optimizer(config: Any, steps: int) -> optax.GradientTransformation:
  """The config's `optimizer` with its `learning_rate`, `schedule`, `momentum`, `nesterov` and `weight_decay`.

  Args:
    config: the run's config.
    steps: the number of steps of the run, for the schedule.

  Returns:
    'sgd' is linear in the gradient, and adds weight decay to the gradient before momentum, as in the paper. 'adamw' is
    Adam with decoupled weight decay, for the algorithms that take any optimizer. An optimizer with a dotted path is what
    its factory returns for the learning rate, the only positional argument, and `optimizer_kwargs`.

  >>> import jax.numpy as jnp
  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> config.update(learning_rate=0.5, weight_decay=0.1)
  >>> sgd, x = inner_optimizer(config, steps=100), jnp.array([10.0])
  >>> updates, _ = sgd.update(jnp.array([1.0]), sgd.init(x), x)
  >>> updates.tolist()  # -0.5 (1 + 0.1 * 10)
  [-1.0]
  """
  _check_optimizer_fields(config)
  if is_dotted(config.optimizer):
    optimizer = factory('optimizer', config, learning_rate(config, steps))()
    if not isinstance(optimizer, optax.GradientTransformation):
      kind = type(optimizer).__name__
      raise UserError(f'optimizer={config.optimizer!r} returns a {kind}, must return an optax.GradientTransformation')
    return optimizer
  if config.optimizer not in OPTIMIZERS:
    raise UserError(f'optimizer={config.optimizer!r}, must be one of {", ".join(OPTIMIZERS)}')
  return OPTIMIZERS[config.optimizer](config, learning_rate(config, steps))


def check_paths(config: Any) -> None:
  """Raises UserError if the optimizer or schedule with a dotted path does not exist or does not take its arguments.

  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> config.schedule = 'optax.cosine_decay_schedule'
  >>> check_paths(config)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: schedule='optax.cosine_decay_schedule': missing a required argument: 'init_value'; it takes \
init_value, decay_steps, alpha, exponent (see schedule_kwargs)
  """
  _check_schedule_fields(config)
  _check_optimizer_fields(config)
  if is_dotted(config.schedule):
    factory('schedule', config)
  if is_dotted(config.optimizer):
    factory('optimizer', config, config.learning_rate)


def clipping(config: Any) -> optax.GradientTransformation:
  """Clips each worker's raw gradient to the norm `clip_norm`; not linear, so it precedes the algorithm.

  >>> import jax.numpy as jnp
  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> config.clip_norm = 1.0
  >>> clip = clipping(config)
  >>> gradient, _ = clip.update(jnp.array([3.0, 4.0]), clip.init(jnp.zeros(2)))
  >>> [round(float(x), 4) for x in gradient]
  [0.6, 0.8]
  """
  return optax.clip_by_global_norm(config.clip_norm)
