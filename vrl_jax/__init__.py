"""Variance Reduced Local SGD and its family as optax-style transforms.

Everything is imported when it is first used, so that a command can handle signals before JAX is imported.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = '0.1.0'

if TYPE_CHECKING:  # type checkers do not see the names otherwise
  import vrl_jax.tasks as tasks  # noqa: F401
  from vrl_jax import algorithms as algorithms
  from vrl_jax.algorithms import *  # noqa: F403
  from vrl_jax.algorithms.core.axes import AXES
  from vrl_jax.config.fields import default_config
  from vrl_jax.config.files import load_config
  from vrl_jax.engine.devices import prepare_devices
  from vrl_jax.engine.engine import Engine
  from vrl_jax.engine.feed import Supply
  from vrl_jax.engine.placement import place_workers
  from vrl_jax.errors import DataError, Diverged, Interrupted, UserError
  from vrl_jax.tasks.task import Task, make_task, task_config
  from vrl_jax.training.comparison import Comparison
  from vrl_jax.training.export import export_model
  from vrl_jax.training.fit import fit
  from vrl_jax.training.loop import train_and_evaluate
  from vrl_jax.training.run_result import RunResult
  from vrl_jax.training.sweep import run_sweep

  __all__ = [
    'AXES',
    'Comparison',
    'DataError',
    'Diverged',
    'Engine',
    'Interrupted',
    'RunResult',
    'Supply',
    'Task',
    'UserError',
    'default_config',
    'export_model',
    'fit',
    'load_config',
    'make_task',
    'place_workers',
    'prepare_devices',
    'run_sweep',
    'task_config',
    'train_and_evaluate',
  ]
  __all__ += algorithms.__all__

_LAZY = {
  'AXES': 'vrl_jax.algorithms.core.axes',
  'Comparison': 'vrl_jax.training.comparison',
  'DataError': 'vrl_jax.errors',
  'Diverged': 'vrl_jax.errors',
  'Engine': 'vrl_jax.engine.engine',
  'Interrupted': 'vrl_jax.errors',
  'RunResult': 'vrl_jax.training.run_result',
  'Supply': 'vrl_jax.engine.feed',
  'Task': 'vrl_jax.tasks.task',
  'UserError': 'vrl_jax.errors',
  'default_config': 'vrl_jax.config.fields',
  'export_model': 'vrl_jax.training.export',
  'fit': 'vrl_jax.training.fit',
  'load_config': 'vrl_jax.config.files',
  'make_task': 'vrl_jax.tasks.task',
  'place_workers': 'vrl_jax.engine.placement',
  'prepare_devices': 'vrl_jax.engine.devices',
  'run_sweep': 'vrl_jax.training.sweep',
  'task_config': 'vrl_jax.tasks.task',
  'train_and_evaluate': 'vrl_jax.training.loop',
}


def __getattr__(name: str) -> Any:
  if name in _LAZY:
    return getattr(importlib.import_module(_LAZY[name]), name)
  if name == 'tasks':
    return importlib.import_module('vrl_jax.tasks')
  if name == '__all__' or not name.startswith('__'):
    algorithms = importlib.import_module('vrl_jax.algorithms')
    if name == '__all__':
      return [*filter(_is_installed, _LAZY), *algorithms.__all__]
    if name in algorithms.__all__:
      return getattr(algorithms, name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def _is_installed(name: str) -> bool:
  """Whether the package of a name can be imported; without the extra `train` some cannot."""
  try:
    importlib.import_module(_LAZY[name].rpartition('.')[0])
  except ImportError:
    return False
  return True


def __dir__() -> list[str]:
  return sorted([*__getattr__('__all__'), '__version__', 'tasks'])
