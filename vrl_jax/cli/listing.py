"""The text of `--list`: everything that a config can name."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.config.fields import common_fields
from vrl_jax.config.files import config_names, config_path
from vrl_jax.data.partition import PARTITIONS
from vrl_jax.tasks.task import task_names


def list_text() -> str:
  """The configs, tasks, algorithms and partitions with a line on each, and the names of the rest.

  >>> lines = list_text().splitlines()
  >>> lines[0], next(line for line in lines if line.startswith('  s_sgd '))[:51]
  ('Configs, --config NAME:', '  s_sgd                      Synchronous SGD (S-SGD')
  """
  sources = {name: ast.parse(config_path(name).read_text()) for name in config_names()}
  tasks = {name: importlib.import_module(f'vrl_jax.tasks.{name}') for name in task_names()}
  allowed = {field.name: getattr(field.check, 'allowed', '') for field in common_fields()}
  return '\n'.join(
    [
      *_section('Configs, --config NAME', {name: ast.get_docstring(source) for name, source in sources.items()}),
      *_section('Tasks, --config.task, or my_module:make_task', _docstrings(tasks)),
      *_section('Algorithms, --config.algorithm, or my_module:half_average', _docstrings(ALGORITHMS)),
      *_section('Partitions, --config.partition', _docstrings(PARTITIONS)),
      f'Optimizers, --config.optimizer:\n  {allowed["optimizer"]}\n',
      f'Schedules, --config.schedule:\n  {allowed["schedule"]}\n',
      '--help shows every field; docs/extending.md adds to all of these.',
    ]
  )


def _docstrings(named):
  return {name: inspect.getdoc(one) for name, one in named.items()}


def _section(title: str, docstrings: Mapping[str, Any]) -> list[str]:
  """A title, and a row for each name with the first line of its docstring."""
  rows = []
  for name, docstring in docstrings.items():
    text = f'{name:<26} {(docstring or "").partition(chr(10))[0]}'
    rows.append(textwrap.fill(text, 120, initial_indent='  ', subsequent_indent=' ' * 29))
  return [f'{title}:', *rows, '']
