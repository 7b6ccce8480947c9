"""The paper's comparison as a sweep: every algorithm from the same initial weights."""

from collections.abc import Iterable
from typing import Any

import ml_collections

from vrl_jax.errors import UserError

_ALGORITHMS: dict[str, dict[str, Any]] = {
  'S-SGD': {'algorithm': 's_sgd'},
  'Local SGD': {'algorithm': 'local_sgd'},
  'EASGD': {'algorithm': 'easgd'},
  'VRL-SGD': {'algorithm': 'vrl_sgd'},
  'VRL-SGD-W': {'algorithm': 'vrl_sgd', 'first_period': 1},
}
_VARIANTS = {
  'non_identical': lambda config: {},
  'identical': lambda config: {'partition': 'identical'},
  'half': lambda config: {'period': config.period // 2},
  'double': lambda config: {'period': config.period * 2},
}


def paper_sweep(
  config: ml_collections.ConfigDict,
  variant: str = '',
  only: Iterable[str] | None = None,
  other_variants: Iterable[str] = (),
) -> ml_collections.ConfigDict:
  """Turns the config of one run into a sweep over S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W, with two figures.

  Args:
    config: the config of one run; it is changed and returned.
    variant: 'non_identical' (the default) divides the classes among the workers, 'identical' gives every worker all
      data, 'half' and 'double' divide the classes and change the period.
    only: the names of the algorithms to keep; None keeps all.
    other_variants: variants that the caller handles itself, to be listed if the name is unknown.

  >>> from vrl_jax.config.fields import default_config
  >>> config = default_config()
  >>> config.period = 20
  >>> sweep = paper_sweep(config, 'half', only=['S-SGD', 'VRL-SGD'])
  >>> sweep.title, [entry['name'] for entry in sweep.sweep]
  ('quadratic, half, k = 10', ['S-SGD', 'VRL-SGD'])
  """
  variant = variant or 'non_identical'
  if variant not in _VARIANTS:
    raise UserError(f'unknown variant {variant!r}, must be one of {", ".join([*_VARIANTS, *other_variants])}')
  config.update(_VARIANTS[variant](config))
  config.title = f'{config.task}, {variant.replace("_", "-")}, k = {config.period}'
  kept = [name for name in _ALGORITHMS if only is None or name in only]
  config.sweep = tuple({'name': name, **_ALGORITHMS[name]} for name in kept)
  figures = (('loss', 'train_loss', True), ('accuracy', 'test_accuracy', False))
  config.figure = tuple(
    {'name': name, 'y': y, 'x': ('epoch', 'communications'), 'log_y': log} for name, y, log in figures
  )
  return config
