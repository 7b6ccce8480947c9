"""A run's folder: its config, its metrics, its summary, and the lock that keeps a second launch out."""

import fcntl
import json
import math
import os
import pathlib
from typing import Any

import ml_collections

from vrl_jax.errors import UserError

# Fields that say how a run is carried out and not what it computes: they may differ when it is resumed.
HOW_NOT_WHAT = ('devices', 'feed', 'checkpoint_every', 'checkpoint_minutes', 'data_dir', 'compilation_cache')


class RunFolder:
  """Opens the folder of one run; a context manager that holds its lock.

  Attributes:
    path: the folder.
    summary: what summary.json holds, or None.
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
    self._config = json.loads(config.to_json_best_effort())
    self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      self._lock = open(self.path / '.lock', 'a+')  # held until the run ends
    except OSError as error:
      raise UserError(f'{self.path}: cannot write there ({error.strerror}): choose another --workdir') from error
    try:
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      self._check_config()
      self.summary = self._read_json('summary.json')
    except BlockingIOError as error:
      self._lock.close()
      raise UserError(f'{self.path}: another process is running in this folder; wait for it or stop it') from error
    except BaseException:
      self._lock.close()
      raise

  def claim(self) -> None:
    """Makes the folder this run's, once it is known that the run can start."""
    self.write_json('config.json', self._config)
    self._made = []

  def __enter__(self):
    return self

  def __exit__(self, *_):
    if self._made:
      (self.path / '.lock').unlink()
      for path in self._made:
        path.rmdir()
    self._lock.close()  # the lock goes with the file, and with the process if that dies

  @property
  def shared(self) -> pathlib.Path:
    """Where runs of one sweep share what they have in common."""
    return self.path.parent if (self.path.parent / 'sweep.json').exists() else self.path

  def write_json(self, name: str, content: Any) -> None:
    """Writes a file whole or not at all."""
    self._replace(name, json.dumps(_plain(content), indent=2, ensure_ascii=False) + '\n')

  def append_metrics(self, lines: list[dict[str, Any]]) -> None:
    """Adds lines to metrics.jsonl."""
    with open(self.path / 'metrics.jsonl', 'a') as file:
      file.writelines(json.dumps(_plain(line)) + '\n' for line in lines)

  def metrics(self) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; half a line at the end, left by a kill, is not counted."""
    try:
      text = (self.path / 'metrics.jsonl').read_text()
    except FileNotFoundError:
      return []
    lines = []
    for line in text.split('\n')[:-1]:
      try:
        lines.append(json.loads(line))
      except json.JSONDecodeError:
        break
    return lines

  def keep_metrics_until(self, step: int) -> list[dict[str, Any]]:
    """Drops what was logged after `step`: a resumed run logs it again. Returns what is left."""
    lines = [line for line in self.metrics() if line['step'] <= step]
    self._replace('metrics.jsonl', ''.join(json.dumps(line) + '\n' for line in lines))
    return lines

  def _check_config(self):
    stored = self._read_json('config.json')
    if stored is None:
      if (self.path / 'metrics.jsonl').exists() or (self.path / 'sweep.json').exists():
        raise UserError(f'{self.path}: holds other results and no config.json; choose another --workdir')
      return
    keys = sorted((stored.keys() | self._config.keys()) - set(HOW_NOT_WHAT))
    differing = [
      f'{key}={stored.get(key)!r} there and {self._config.get(key)!r} now'
      for key in keys
      if stored.get(key) != self._config.get(key)
    ]
    if differing:
      raise UserError(f'{self.path}: holds a run with another config: {"; ".join(differing)}; choose another --workdir')

  def _read_json(self, name):
    try:
      content = json.loads((self.path / name).read_text())
      if not isinstance(content, dict):
        raise ValueError('not an object')
      return content
    except FileNotFoundError:
      return None
    except (ValueError, OSError) as error:
      raise UserError(
        f'{self.path / name}: cannot be read ({error}); move it away or choose another --workdir'
      ) from None

  def _replace(self, name, text):
    temporary = self.path / f'.{name}.tmp'
    with open(temporary, 'w') as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())
    temporary.replace(self.path / name)


def _plain(content):
  """JSON has no NaN or infinity: they become null."""
  if isinstance(content, dict):
    return {key: _plain(value) for key, value in content.items()}
  if isinstance(content, list | tuple):
    return [_plain(value) for value in content]
  if isinstance(content, float) and not math.isfinite(content):
    return None
  return content
