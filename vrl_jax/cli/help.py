"""The text of `--help`."""

import textwrap
from collections.abc import Iterable

import ml_collections

from vrl_jax.cli.flags import USAGE
from vrl_jax.cluster.join import Cluster
from vrl_jax.config.algorithms import custom_fields
from vrl_jax.config.checks import OneOf
from vrl_jax.config.fields import common_fields
from vrl_jax.config.files import config_names
from vrl_jax.config.table import Field, Role
from vrl_jax.tasks.task import task_fields, task_names

_PROCESSES = f"""
Several processes, on one machine or many: start the same command for each with --coordinator_address HOST:PORT
--num_processes N --process_id I (process 0 listens at that address), or with --distributed alone where JAX finds the
processes itself (Cloud TPU, Slurm, Kubernetes, Open MPI).
--heartbeat_timeout_seconds ({Cluster._field_defaults['heartbeat_timeout_seconds']}): a process that is silent for this long counts as dead.
--initialization_timeout ({Cluster._field_defaults['initialization_timeout']}): seconds to wait for all processes at the start."""


def help_text(config: ml_collections.ConfigDict | None = None) -> str:
  """Usage, the configs, and every field with its default (or its value in `config`) and one line of help.

  >>> text = help_text()
  >>> '--config.workers=8' in text, 'figures/quadratic' in text
  (True, True)
  """
  own = {task: task_fields(task) for task in (task_names() if config is None else [config.task])}
  parts = [
    f'usage: {USAGE}',
    'Without --workdir the run directory is a dated one in runs/. Rerun the same command to resume.',
    'Configs (--list describes them, the tasks and the algorithms): ' + ', '.join(config_names()),
  ]
  for role in Role:
    parts += _section(role.value, (field for field in common_fields() if field.role is role), config)
  if config is not None:
    parts += _section(f'Options of algorithm={config.algorithm}', custom_fields(config.algorithm), config)
  for task, fields in own.items():
    parts += _section(f'Fields of task={task}', fields, config)
  return '\n'.join(
    [*(textwrap.fill(part, 120) if len(part) > 120 and '\n' not in part else part for part in parts), _PROCESSES]
  )


def _section(title: str, fields: Iterable[Field], config: ml_collections.ConfigDict | None) -> list[str]:
  lines = [_row(field, field.default if config is None else config.get(field.name, field.default)) for field in fields]
  return ['', f'{title}:', *lines] if lines else []


def _row(field, value):
  shown = '' if value is None else value
  flag = f'  --config.{field.name}={shown}'
  text = f'{field.help}: {field.check.allowed}' if isinstance(field.check, OneOf) else field.help
  wrapped = textwrap.wrap(text, 78)
  first = f'{flag:<40}  {wrapped[0]}' if len(flag) <= 40 else f'{flag}\n{"":42}{wrapped[0]}'
  return '\n'.join([first, *(f'{"":42}{line}' for line in wrapped[1:])])
