"""What all processes of a run must have in common, compared before anything is computed."""

import functools
import importlib.metadata
import json
import pathlib
import zlib
from typing import Any

import jax
import ml_collections
import numpy as np

from vrl_jax import hosts
from vrl_jax.errors import UserError
from vrl_jax.restore import checksum
from vrl_jax.runfolder import HOW_NOT_WHAT
from vrl_jax.tasks.base import Task

_PACKAGE = pathlib.Path(__file__).parent
_MAY_DIFFER = set(HOW_NOT_WHAT) - {'devices', 'feed'}  # these two decide which programs are compiled


def require_same(fields: dict[str, Any]) -> None:
  """Raises UserError, in every process, if the processes do not have the same fields; names those that differ.

  Args:
    fields: this process's own, as JSON can hold them.

  >>> require_same({'seed': 0})  # a process alone agrees with itself
  """
  if hosts.count() > 1 and (told := disagreement(hosts.collect(fields))):
    error = UserError(f'the processes do not agree: {told}; start all of them with the same command, code and data')
    raise hosts.of_all(error)


def disagreement(fields: list[dict[str, Any]]) -> str:
  """The fields that are not the same in all processes, with the first process that differs from process 0.

  >>> disagreement([{'seed': 0, 'period': 5}, {'seed': 0, 'period': 5}, {'seed': 7, 'period': 5}])
  'seed=0 in process 0 and 7 in process 2'
  """
  first, told = fields[0], []
  for name in sorted(set().union(*fields)):
    for process, others in enumerate(fields):
      if others.get(name) != first.get(name):
        told.append(f'{name}={first.get(name)!r} in process 0 and {others.get(name)!r} in process {process}')
        break
  return '; '.join(told)


def run_fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """The config, but for what each machine may have its own way, and the versions of the code.

  >>> from vrl_jax.config import default_config
  >>> fields = run_fields(default_config())
  >>> fields['algorithm'], 'version of jax' in fields, 'data_dir' in fields
  ('vrl_sgd', True, False)
  """
  fields = json.loads(config.to_json_best_effort())
  versions = {'jax': jax.__version__, 'numpy': np.__version__, 'vrl_jax': _version()}
  return {k: v for k, v in fields.items() if k not in _MAY_DIFFER} | {f'version of {k}': v for k, v in versions.items()}


def data_fields(task: Task) -> dict[str, str]:
  """Type, shape and CRC-32 of each of the task's arrays.

  >>> task = Task(None, None, None, {'x': np.zeros((3, 2), np.float32)}, np.arange(3))
  >>> data_fields(task)['data train/x']
  'float32[3, 2] a3c1ca20'
  """
  trees = {'train': task.train, 'labels': task.labels, 'test': task.test, 'frozen': task.frozen}
  return {
    f'data {jax.tree_util.keystr(path, simple=True, separator="/")}': f'{x.dtype}{list(x.shape)} {checksum(np.asarray(x)):08x}'
    for path, x in jax.tree_util.tree_leaves_with_path(trees)
  }


@functools.cache
def _version():
  """The package's version and a checksum of its sources, which change without it."""
  sources = 0
  for path in sorted(_PACKAGE.rglob('*.py')):
    sources = zlib.crc32(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes(), sources)
  return f'{importlib.metadata.version("vrl-jax")} ({sources:08x})'
