"""The run directory: config, metrics, summary, and a lock against a second launch."""

import contextlib
import json
import math
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import Any

import ml_collections

from vrl_jax.cluster import processes
from vrl_jax.config.table import RESULT_ROLES, stored_value, with_roles
from vrl_jax.errors import StorageError, UserError
from vrl_jax.system.storage import expand_home, remove_abandoned, replace_text
from vrl_jax.training.directory_lock import DirectoryLock
from vrl_jax.training.extension import is_longer, obstacle
from vrl_jax.training.log_points import LogSteps
from vrl_jax.training.metrics_file import keep_lines_until, read_lines

_METRICS = 'metrics.jsonl'


class RunDirectory:
  """The open directory of one run.

  Only process 0 reads and writes it, and sends what is in it to the others. Before each write it verifies that it still
  holds the lock: a directory that was removed, moved or taken over by another run is left alone.

  Attributes:
    path: the directory.
    config: the fields of the run's config, as JSON represents them.
    summary: the content of summary.json; None if there is none, or if a finished run is to be extended.

  >>> import tempfile
  >>> config = ml_collections.ConfigDict({'task': 'quadratic', 'period': 5})
  >>> with tempfile.TemporaryDirectory() as workdir, RunDirectory.open(workdir, config) as directory:
  ...   directory.start_run()
  ...   directory.append_metrics([{'step': 0, 'train_loss': 0.5}, {'step': 5, 'train_loss': 0.25}])
  ...   list(directory.metrics())
  ...   sorted(os.listdir(workdir))
  [{'step': 0, 'train_loss': 0.5}, {'step': 5, 'train_loss': 0.25}]
  ['.lock', 'config.json', 'metrics.jsonl']
  """

  def __init__(
    self, path: pathlib.Path, config: dict[str, Any], summary: dict[str, Any] | None, lock: DirectoryLock | None
  ):
    """Use `open`; only process 0 has a lock."""
    self.path = path
    self.config = config
    self.summary = summary
    self._lock = lock
    self._run_started = False
    self._is_seen_by_all: bool | None = None

  @classmethod
  @contextlib.contextmanager
  def open(cls, workdir: str | os.PathLike, config: ml_collections.ConfigDict) -> Iterator['RunDirectory']:
    """Yields the directory, created and locked; removes it if the run never started.

    Args:
      workdir: its path.
      config: the run's config.

    Raises:
      UserError: it belongs to another config or to a running process, or cannot be written.
    """
    path = expand_home(workdir, 'workdir')
    fields = json.loads(config.to_json_best_effort())
    with contextlib.ExitStack() as stack:
      locks: list[DirectoryLock] = []
      created: list[pathlib.Path] = []

      def open_in_main():
        missing = [one for one in (path, *path.parents) if not os.path.exists(one)]
        check_same_config(path, config)  # before the lock: nothing is written into the directory of another run
        locks.append(stack.enter_context(DirectoryLock.acquire(path)))
        created.extend(missing)
        check_same_config(path, config)
        remove_abandoned(path)
        summary = _read_summary(path / 'summary.json')
        if summary and summary['status'] == 'finished' and is_longer(read_json(path / 'config.json') or {}, fields):
          return None
        return summary

      directory = None
      try:
        summary = processes.from_main(open_in_main)
        directory = cls(path, fields, summary, locks[0] if locks else None)
        yield directory
      finally:
        if created and not (directory and directory._run_started):
          _remove(created, locks[0])

  @processes.main_only
  def start_run(self) -> None:
    """Stores the config, once it is known that the run can start."""
    with self._writing():
      # Of an interruption, or of the shorter run: if killed now, the run has none.
      (self.locked_path / 'summary.json').unlink(missing_ok=True)
    self.write_json('config.json', self.config)
    self._run_started = True

  def is_seen_by_all(self) -> bool:
    """Whether there are several processes and all see this directory, so that each can write a part of a checkpoint."""
    if processes.count() == 1:
      return False
    if self._is_seen_by_all is None:
      name = f'.seen_by_all.{processes.from_main(lambda: secrets.token_hex(8))}'
      with self._writing() if processes.is_main() else contextlib.nullcontext():
        if processes.is_main():
          (self.locked_path / name).touch()
        processes.wait_for_all()
        self._is_seen_by_all = all(processes.collect((self.path / name).exists()))
        if processes.is_main():
          (self.locked_path / name).unlink()
    return self._is_seen_by_all

  @property
  def shared(self) -> pathlib.Path:
    """The directory for files that the runs of a sweep share; the run directory itself if there is no sweep."""
    return self.path.parent if (self.path.parent / 'sweep.json').exists() else self.path

  @processes.main_only
  def write_json(self, name: str, content: Any) -> None:
    """Writes a JSON file atomically."""
    with self._writing():
      replace_text(self.locked_path / name, json.dumps(_plain(content), indent=2, ensure_ascii=False) + '\n')

  @processes.main_only
  def append_metrics(self, lines: list[dict[str, Any]]) -> None:
    """Adds lines to metrics.jsonl."""
    with self._writing(), open(self.locked_path / _METRICS, 'a') as file:
      file.write(''.join(json.dumps(_plain(line)) + '\n' for line in lines))

  @processes.main_only
  def sync_metrics(self) -> None:
    """Flushes metrics.jsonl to disk, so that no checkpoint is newer than it even after a power failure."""
    with self._writing(), open(self.locked_path / _METRICS, 'a') as file:
      os.fsync(file.fileno())

  def keep_metrics_until(self, step: int, expected: LogSteps) -> dict[str, Any] | None:
    """`keep_lines_until` for metrics.jsonl; only for process 0."""
    with self._writing():
      return keep_lines_until(self.path / _METRICS, step, expected)

  def metrics(self) -> Iterator[dict[str, Any]]:
    """Yields the log lines; only for process 0."""
    return read_lines(self.path / _METRICS)

  @processes.main_only
  def require_lock(self) -> None:
    """Raises StorageError if this process no longer holds the directory."""
    assert self._lock is not None  # in process 0
    self._lock.require()

  @property
  def locked_path(self) -> pathlib.Path:
    """Where to write, see `DirectoryLock.locked_path`; in processes other than 0, which do not write, `path`."""
    return self._lock.locked_path if self._lock else self.path

  @contextlib.contextmanager
  def locked(self) -> Iterator[None]:
    """Around writes that are done elsewhere: raises StorageError if the lock is lost before or during them."""
    self.require_lock()
    try:
      yield
    finally:
      self.require_lock()  # the loss of the directory explains any other error

  @contextlib.contextmanager
  def _writing(self):
    with self.locked():
      try:
        yield
      except OSError as error:
        raise StorageError(
          f'{self.path}: cannot be written ({error.strerror or error}); the checkpoints in it are intact'
        ) from error


def _remove(created, lock):
  """Removes the lock and empty directories; initial weights may have been stored in the others."""
  with contextlib.suppress(OSError, StorageError):
    lock.require()
    (created[0] / '.lock').unlink()
    for path in created:
      path.rmdir()


def check_same_config(path: pathlib.Path, config: ml_collections.ConfigDict) -> None:
  """Raises UserError if the directory holds a run with another config, or other results.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   replace_text(pathlib.Path(name, 'config.json'), '{"period": 5}')
  ...   check_same_config(pathlib.Path(name), ml_collections.ConfigDict({'period': 5}))
  ...   try:
  ...     check_same_config(pathlib.Path(name), ml_collections.ConfigDict({'period': 10}))
  ...   except UserError as error:
  ...     print(str(error).removeprefix(name))
  : holds a run with another config: period=5 there and 10 now; choose another --workdir
  """
  stored = read_json(path / 'config.json')
  if stored is None:
    if any(os.path.exists(path / name) for name in ('metrics.jsonl', 'sweep.json')):
      raise UserError(f'{path}: holds other results and no config.json; choose another --workdir')
  elif differing := differences(stored, json.loads(config.to_json_best_effort())):
    raise UserError(f'{path}: holds a run with another config: {differing}; choose another --workdir')


def differences(stored: dict[str, Any], now: dict[str, Any]) -> str:
  """The fields in which two configs differ, among those that decide the result; '' if one extends the other.

  >>> differences({'period': 5, 'seed': 0, 'devices': 1}, {'period': 10, 'seed': 0, 'devices': 8})
  'period=5 there and 10 now'
  >>> differences({'period': 5, 'steps': 40}, {'period': 5, 'steps': 80})
  ''
  """
  stored, now = with_roles(stored, *RESULT_ROLES), with_roles(now, *RESULT_ROLES)
  names = sorted(stored.keys() | now.keys())
  values = {name: (stored_value(stored, name), stored_value(now, name)) for name in names}
  differing = [name for name, (before, after) in values.items() if before != after]
  why_not = ''
  if len(differing) == 1 and is_longer(stored, now):
    if not (reason := obstacle(now)):
      return ''
    why_not = f', and the run cannot be extended: {reason}'
  return '; '.join('{}={!r} there and {!r} now'.format(name, *values[name]) for name in differing) + why_not


def read_json(path: pathlib.Path) -> dict[str, Any] | None:
  """The content of a JSON file; None if there is no such file.

  Raises:
    UserError: it is not a JSON object, or cannot be read.

  >>> print(read_json(pathlib.Path('nowhere', 'config.json')))
  None
  """
  try:
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
      raise ValueError('not an object')
    return content
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (ValueError, RecursionError, OSError) as error:
    raise UserError(f'{path}: cannot be read ({error}); move it away or choose another --workdir') from None


def _read_summary(path):
  summary = read_json(path)
  if summary is not None:
    needed = {'status': str, 'step': int} | ({'message': str} if summary.get('status') == 'diverged' else {})
    for name, kind in needed.items():
      if not isinstance(summary.get(name), kind):
        raise UserError(f'{path}: cannot be read (no {name!r}); move it away or choose another --workdir')
  return summary


def _plain(content):
  """Replaces NaN and infinity, which JSON cannot represent, by null."""
  if isinstance(content, dict):
    return {key: _plain(value) for key, value in content.items()}
  if isinstance(content, list | tuple):
    return [_plain(value) for value in content]
  if isinstance(content, float) and not math.isfinite(content):
    return None
  return content
