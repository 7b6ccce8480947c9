"""Fingerprints of a task or algorithm that was passed as an object, so that a run resumes only with the same one."""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from vrl_jax.algorithms import Algorithm
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.cluster import processes
from vrl_jax.errors import UserError
from vrl_jax.system.storage import checksum
from vrl_jax.tasks.task import Task
from vrl_jax.training.fingerprint import data_fields
from vrl_jax.training.run_directory import read_json

FILE = 'given.json'
"""The file in a run directory that holds the fingerprints."""

_KINDS = {
  'task': 'another task (other data, initial parameters, loss or metrics)',
  'algorithm': 'another algorithm (other updates or communication)',
}


def task_fingerprint(task: Task, batch_size: int) -> str:
  """A checksum of a task's data, initial parameters, loss and metrics.

  >>> def task(power):
  ...   loss = lambda x, frozen, batch, rng: ((x - batch) ** power).mean()
  ...   metrics = lambda x, frozen, batch: {'loss': (x - batch) ** power}
  ...   return Task(lambda rng: np.float32(1), loss, metrics, train=np.arange(4.0), labels=np.arange(4))
  >>> task_fingerprint(task(2), 2) == task_fingerprint(task(2), 2), task_fingerprint(task(2), 2) == task_fingerprint(task(4), 2)
  (True, False)
  """
  frozen = {**task.frozen, 'batch_stats': task.batch_stats} if task.batch_stats else task.frozen
  batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch_size, *x.shape[1:]), x.dtype), task.train)
  params, rng = jax.eval_shape(lambda rng: (task.init(rng), rng), jax.random.key(0))
  total = checksum(json.dumps(data_fields(task), sort_keys=True).encode())
  total = _of_program(total, task.init, rng)
  total = _of_program(total, task.loss, params, frozen, batch, rng)
  return f'{_of_program(total, task.metrics, params, frozen, batch):08x}'


def algorithm_fingerprint(algorithm: Algorithm, params: Any, workers: int) -> str:
  """A checksum of the jaxprs of an algorithm for parameters of these shapes.

  >>> import optax, vrl_jax
  >>> rate = lambda rate: algorithm_fingerprint(vrl_jax.vrl_sgd(optax.sgd(rate)), np.zeros(3, np.float32), workers=8)
  >>> rate(0.1) == rate(0.1), rate(0.1) == rate(0.2)
  (True, False)
  """

  def period(params):
    state = algorithm.transform.init(params)
    updates, stepped = algorithm.transform.update(params, state, params)
    model, end = algorithm.communicate(params, stepped)
    return updates, model, end, algorithm.consensus(model, end), algorithm.correction(end)

  return f'{_of_program(0, period, params, workers=workers):08x}'


def _of_program(start: int, fun: Callable[..., Any], *args: Any, workers: int = 1) -> int:
  """The checksum of a function's jaxpr and of the arrays in it, for arguments of these shapes."""
  traced = jax.make_jaxpr(fun, axis_env=[(AXES[0], 1), (AXES[1], workers)])(*args)
  total = checksum(re.sub(r'0x[0-9a-f]+', '', str(traced.jaxpr)).encode(), start)  # without the addresses of functions
  for const in traced.consts:
    is_key = isinstance(const, jax.Array) and jax.dtypes.issubdtype(const.dtype, jax.dtypes.prng_key)
    total = checksum(np.asarray(jax.random.key_data(const) if is_key else const), total)
  return total


def given_fingerprints(
  task: Task | None, algorithm: Algorithm | None, params: Any, *, batch_size: int, workers: int
) -> dict[str, str]:
  """The fingerprint of each object that was given; they have been checked.

  Args:
    task: the task, if it was given.
    algorithm: the algorithm, if it was given.
    params: the shapes of the parameters.
    batch_size: of each worker.
    workers: N.

  >>> given_fingerprints(None, None, None, batch_size=32, workers=8)
  {}
  """
  fingerprints = {} if task is None else {'task': task_fingerprint(task, batch_size)}
  return fingerprints | ({} if algorithm is None else {'algorithm': algorithm_fingerprint(algorithm, params, workers)})


def require_same_given(path: pathlib.Path, given: dict[str, str]) -> None:
  """Raises UserError if the directory holds a run of other objects.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   path = pathlib.Path(name)
  ...   _ = (path / 'config.json').write_text('{}'), (path / FILE).write_text('{"task": "0badcafe"}')
  ...   require_same_given(path, {'task': '0badcafe'})
  ...   try:
  ...     require_same_given(path, {'task': 'deadbeef'})
  ...   except UserError as error:
  ...     print(str(error).removeprefix(name))
  : holds a run of another task (other data, initial parameters, loss or metrics); choose another --workdir
  """
  if not processes.from_main(lambda: (path / 'config.json').exists()):
    return
  stored = processes.from_main(lambda: read_given(path))
  for name, other in _KINDS.items():
    if stored.get(name) != given.get(name):
      raise UserError(f'{path}: holds a run of {other}; choose another --workdir', everywhere=True)


def read_given(path: pathlib.Path) -> dict[str, str]:
  """The fingerprints in a run directory, by 'task' and 'algorithm'; empty if no objects were given.

  >>> read_given(pathlib.Path('nowhere'))
  {}
  """
  return read_json(path / FILE) or {}
