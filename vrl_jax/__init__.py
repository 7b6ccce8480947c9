"""Variance Reduced Local SGD and its family as optax-style transforms.

The algorithms and combinators are imported at once; the engine, configs and the training loop when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vrl_jax.cpu.thread_pool import guard_against_deadlock as _guard_against_deadlock

# Sets environment variables (PJRT_NPROC, XLA_FLAGS) that JAX reads once, when its backend starts. Nothing else protects a
# user's own loop over several virtual CPU devices from a dead-lock: see vrl_jax/cpu/thread_pool.py.
_guard_against_deadlock()

from vrl_jax import algorithms  # noqa: E402
from vrl_jax.algorithms import *  # noqa: E402, F403

if TYPE_CHECKING:  # type checkers do not see the names of _LAZY otherwise
  from vrl_jax.algorithms.core.axes import AXES
  from vrl_jax.config.fields import default_config
  from vrl_jax.config.files import load_config
  from vrl_jax.engine.devices import prepare_devices
  from vrl_jax.engine.engine import Engine
  from vrl_jax.engine.feed import Supply
  from vrl_jax.engine.placement import place_workers
  from vrl_jax.errors import DataError, Diverged, Interrupted, UserError
  from vrl_jax.tasks.task import Task, make_task, task_config
  from vrl_jax.training.loop import train_and_evaluate
  from vrl_jax.training.sweep import run_sweep

_LAZY = {
  'AXES': 'vrl_jax.algorithms.core.axes',
  'DataError': 'vrl_jax.errors',
  'Diverged': 'vrl_jax.errors',
  'Engine': 'vrl_jax.engine.engine',
  'Interrupted': 'vrl_jax.errors',
  'Supply': 'vrl_jax.engine.feed',
  'Task': 'vrl_jax.tasks.task',
  'UserError': 'vrl_jax.errors',
  'default_config': 'vrl_jax.config.fields',
  'load_config': 'vrl_jax.config.files',
  'make_task': 'vrl_jax.tasks.task',
  'place_workers': 'vrl_jax.engine.placement',
  'prepare_devices': 'vrl_jax.engine.devices',
  'run_sweep': 'vrl_jax.training.sweep',
  'task_config': 'vrl_jax.tasks.task',
  'train_and_evaluate': 'vrl_jax.training.loop',
}

__all__ = [
  'AXES',
  'DataError',
  'Diverged',
  'Engine',
  'Interrupted',
  'Supply',
  'Task',
  'UserError',
  'default_config',
  'load_config',
  'make_task',
  'place_workers',
  'prepare_devices',
  'run_sweep',
  'task_config',
  'train_and_evaluate',
]
__all__ += algorithms.__all__


def __getattr__(name: str) -> Any:
  if name not in _LAZY:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
  return sorted(__all__)
