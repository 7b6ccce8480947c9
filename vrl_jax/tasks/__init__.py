"""The tasks, one module each, and the functions and types for tasks outside the package.

A module outside the package that defines `make_task(config)`, and optionally `FIELDS`, is named by a dotted path:
`config.task = 'my_module:make_task'`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vrl_jax.errors import require_extra

if TYPE_CHECKING:
  from vrl_jax.config.checks import finite, integer, number, one_of
  from vrl_jax.config.table import Field, Role
  from vrl_jax.tasks.classification import classification_task
  from vrl_jax.tasks.loss import loss_task
  from vrl_jax.tasks.regression import regression_task
  from vrl_jax.tasks.task import Task

require_extra('train', __name__, 'chex', 'flax', 'ml_collections', 'tqdm')

_LAZY = {
  'Field': 'vrl_jax.config.table',
  'Role': 'vrl_jax.config.table',
  'Task': 'vrl_jax.tasks.task',
  'classification_task': 'vrl_jax.tasks.classification',
  'finite': 'vrl_jax.config.checks',
  'integer': 'vrl_jax.config.checks',
  'loss_task': 'vrl_jax.tasks.loss',
  'number': 'vrl_jax.config.checks',
  'one_of': 'vrl_jax.config.checks',
  'regression_task': 'vrl_jax.tasks.regression',
}

__all__ = [
  'Field',
  'Role',
  'Task',
  'classification_task',
  'finite',
  'integer',
  'loss_task',
  'number',
  'one_of',
  'regression_task',
]


def __getattr__(name: str) -> Any:
  if name not in _LAZY:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
