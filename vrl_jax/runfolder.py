"""A run's folder: its config, its metrics, its summary, and the lock that keeps a second launch out."""

import contextlib
import fcntl
import json
import math
import os
import pathlib
from collections.abc import Callable
from typing import IO, Any

import ml_collections

from vrl_jax import hosts
from vrl_jax.errors import DataError, UserError

# Fields that say how a run is carried out and not what it computes: they may differ when it is resumed.
HOW_NOT_WHAT = (
  *('devices', 'feed', 'checkpoint_every', 'checkpoint_minutes', 'data_dir'),
  *('conv_form', 'unroll', 'workers_at_once', 'tile_bytes', 'steps_per_dispatch'),
  *('compilation_cache', 'tensorboard', 'wandb'),
)


class StorageError(UserError):
  """The run's folder can no longer be written.

  >>> StorageError('runs/a: cannot be written any more (No space left on device)').exit_status
  5
  """

  exit_status = 5


class RunFolder:
  """Opens the folder of one run; a context manager that holds its lock.

  Of several processes only the first touches the folder, and tells the others what is in it.

  Attributes:
    path: the folder.
    config: the fields of the run's config, as JSON has them.
    summary: what summary.json holds, or None.

  >>> import tempfile
  >>> config = ml_collections.ConfigDict({'task': 'quadratic', 'period': 5})
  >>> with tempfile.TemporaryDirectory() as workdir, RunFolder(workdir, config) as folder:
  ...   folder.claim()
  ...   folder.append_metrics([{'step': 5, 'train_loss': 0.5}, {'step': 10, 'train_loss': 0.25}])
  ...   folder.keep_metrics_until(step=5, log_points=lambda step, lines: [5])
  ...   sorted(os.listdir(workdir))
  [{'step': 5, 'train_loss': 0.5}]
  ['.lock', 'config.json', 'metrics.jsonl']
  """

  def __init__(self, workdir: str | os.PathLike, config: ml_collections.ConfigDict):
    """Makes the folder or checks that it is this config's.

    Args:
      workdir: the folder, made if it is not there.
      config: the run's config.

    Raises:
      UserError: the folder belongs to another config, to a running process, or cannot be written.
    """
    self.path = pathlib.Path(workdir)
    self.config = json.loads(config.to_json_best_effort())
    self._made, self._lock = [], contextlib.nullcontext()
    self.summary = hosts.from_main(lambda: self._open(config))

  def _open(self, config):
    self._made = [path for path in (self.path, *self.path.parents) if not os.path.exists(path)]
    check_same_config(self.path, config)  # before there is so much as a lock in a folder that is not ours
    self._lock = lock(self.path)
    try:
      check_same_config(self.path, config)
      return _read_summary(self.path / 'summary.json')
    except BaseException:
      self.__exit__()
      raise

  @hosts.main_only
  def claim(self) -> None:
    """Makes the folder this run's, once it is known that the run can start."""
    self.write_json('config.json', self.config)
    with self._told():
      (self.path / 'summary.json').unlink(missing_ok=True)  # of an interruption; killed now, the run is unfinished
    self._made = []

  def __enter__(self):
    return self

  def __exit__(self, *_):
    if self._made:
      with contextlib.suppress(OSError):  # initial weights, which took a while, may be there: then they stay
        (self.path / '.lock').unlink()
        for path in self._made:
          path.rmdir()
    with self._lock:  # closes it: the lock goes with the file, and with the process if that dies
      pass

  @property
  def shared(self) -> pathlib.Path:
    """Where runs of one sweep share what they have in common."""
    return self.path.parent if (self.path.parent / 'sweep.json').exists() else self.path

  @hosts.main_only
  def write_json(self, name: str, content: Any) -> None:
    """Writes a file whole or not at all."""
    with self._told():
      replace_text(self.path / name, json.dumps(_plain(content), indent=2, ensure_ascii=False) + '\n')

  @hosts.main_only
  def append_metrics(self, lines: list[dict[str, Any]]) -> None:
    """Adds lines to metrics.jsonl."""
    with self._told(), open(self.path / 'metrics.jsonl', 'a') as file:
      file.write(''.join(json.dumps(_plain(line)) + '\n' for line in lines))

  @hosts.main_only
  def sync_metrics(self) -> None:
    """Makes sure that what was logged is on the disk, so that no checkpoint is ahead of it even if the power fails."""
    with self._told(), open(self.path / 'metrics.jsonl', 'a') as file:
      os.fsync(file.fileno())

  def keep_metrics_until(
    self, step: int, log_points: Callable[[int, list[dict[str, Any]]], list[int]]
  ) -> list[dict[str, Any]]:
    """Drops what was logged after `step`: a resumed run logs it again.

    Args:
      step: the step that the run goes on from.
      log_points: `(step, lines) -> steps`, the steps up to `step` that must be there; `lines` are those that are.

    Returns:
      The lines that are left.

    Raises:
      DataError: lines are damaged or missing; nothing has changed.
    """
    return hosts.from_main(lambda: self._keep_metrics_until(step, log_points))

  def _keep_metrics_until(self, step, log_points):
    path = self.path / 'metrics.jsonl'
    with self._told():
      text = path.read_text() if path.exists() else ''
    kept = []
    for number, line in enumerate(text.split('\n')[:-1], 1):  # half a line at the end, left by a kill, does not count
      try:
        kept.append((line, json.loads(line)))
        if kept[-1][1]['step'] > step:
          kept.pop()
      except (ValueError, KeyError, TypeError):
        raise DataError(f'{path}: line {number} is damaged: {line[:40]!r}; repair it to go on') from None
    steps = [fields['step'] for _, fields in kept]
    expected = log_points(step, [fields for _, fields in kept])
    if steps != expected:
      wrong = sorted(set(steps) ^ set(expected)) or steps
      raise DataError(
        f'{path}: the lines up to step {step} are not those of the run, see step {wrong[0]}: restore them'
      )
    if text != (whole := ''.join(line + '\n' for line, _ in kept)):
      with self._told():
        replace_text(path, whole)
    return [fields for _, fields in kept]

  @contextlib.contextmanager
  def _told(self):
    try:
      yield
    except OSError as error:
      raise StorageError(
        f'{self.path}: cannot be written any more ({error.strerror or error}); the checkpoints in it are whole'
      ) from error


def lock(folder: pathlib.Path) -> IO[str]:
  """Makes a folder and locks it until the result is closed, or the process dies however it does.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name, lock(pathlib.Path(name)):
  ...   try:
  ...     lock(pathlib.Path(name))
  ...   except UserError as error:
  ...     print(str(error).removeprefix(name))
  : another process is running in this folder; wait for it or stop it
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
    while True:
      file = open(folder / '.lock', 'a+')
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / '.lock')):
          return file
      file.close()  # a launch that failed has just removed it
  except BlockingIOError as error:
    file.close()
    raise UserError(f'{folder}: another process is running in this folder; wait for it or stop it') from error
  except OSError as error:
    raise UserError(f'{folder}: cannot write there ({error.strerror}): choose another --workdir') from error


def check_same_config(folder: pathlib.Path, config: ml_collections.ConfigDict) -> None:
  """Raises UserError if the folder holds a run of another config, or something else altogether.

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
  stored = _read_json(folder / 'config.json')
  if stored is None:
    if any(os.path.exists(folder / name) for name in ('metrics.jsonl', 'sweep.json')):
      raise UserError(f'{folder}: holds other results and no config.json; choose another --workdir')
  elif other := differences(stored, json.loads(config.to_json_best_effort())):
    raise UserError(f'{folder}: holds a run with another config: {other}; choose another --workdir')


def differences(stored: dict[str, Any], now: dict[str, Any]) -> str:
  """The fields in which two configs differ, but for those of how a run is carried out.

  >>> differences({'period': 5, 'seed': 0, 'devices': 1}, {'period': 10, 'seed': 0, 'devices': 8})
  'period=5 there and 10 now'
  """
  keys = sorted((stored.keys() | now.keys()) - set(HOW_NOT_WHAT))
  pairs = ((key, stored.get(key), now.get(key)) for key in keys)
  return '; '.join(f'{key}={there!r} there and {here!r} now' for key, there, here in pairs if there != here)


def replace_text(path: pathlib.Path, text: str) -> None:
  """Writes a file whole or not at all.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   path = pathlib.Path(name, 'summary.json')
  ...   replace_text(path, 'old')
  ...   replace_text(path, 'new')  # whoever reads meanwhile sees one or the other
  ...   path.read_text(), os.listdir(name)
  ('new', ['summary.json'])
  """
  temporary = path.with_name(f'.{path.name}.tmp')
  with open(temporary, 'w') as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(path)


def _read_json(path):
  try:
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
      raise ValueError('not an object')
    return content
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (ValueError, OSError) as error:
    raise UserError(f'{path}: cannot be read ({error}); move it away or choose another --workdir') from None


def _read_summary(path):
  summary = _read_json(path)
  if summary is not None:
    needed = {'status': str, 'step': int} | ({'message': str} if summary.get('status') == 'diverged' else {})
    for name, kind in needed.items():
      if not isinstance(summary.get(name), kind):
        raise UserError(f'{path}: cannot be read (no {name!r}); move it away or choose another --workdir')
  return summary


def _plain(content):
  """JSON has no NaN or infinity: they become null."""
  if isinstance(content, dict):
    return {key: _plain(value) for key, value in content.items()}
  if isinstance(content, list | tuple):
    return [_plain(value) for value in content]
  if isinstance(content, float) and not math.isfinite(content):
    return None
  return content
