"""Compares the config, code and data of the processes before anything is computed."""

from typing import Any

from vrl_jax.cluster import processes
from vrl_jax.errors import UserError


def require_same(fields: dict[str, Any]) -> None:
  """Raises UserError, in every process, if the processes do not have the same fields; names those that differ.

  Args:
    fields: the fields of this process, with values that JSON can represent.

  >>> require_same({'seed': 0})  # one process always agrees with itself
  """
  if processes.count() > 1 and (differing := disagreement(processes.collect(fields))):
    processes.wait_for_all()
    message = f'the processes do not agree: {differing}; start all of them with the same command, code and data'
    raise UserError(message, everywhere=True)


def disagreement(fields: list[dict[str, Any]]) -> str:
  """The fields that differ between processes, each with the first process that differs from process 0.

  >>> disagreement([{'seed': 0, 'period': 5}, {'seed': 0, 'period': 5}, {'seed': 7, 'period': 5}])
  'seed=0 in process 0 and 7 in process 2'
  """
  first, differing = fields[0], []
  for name in sorted(set().union(*fields)):
    for process, others in enumerate(fields):
      if others.get(name) != first.get(name):
        differing.append(f'{name}={first.get(name)!r} in process 0 and {others.get(name)!r} in process {process}')
        break
  return '; '.join(differing)
