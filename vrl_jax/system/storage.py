"""The cache directory, checksums and atomic writes."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import secrets
import stat
import zlib
from collections.abc import Iterator

import numpy as np

from vrl_jax.errors import UserError


def expand_home(path: str | os.PathLike, setting: str) -> pathlib.Path:
  """A path with `~` or `~user` expanded; raises UserError, which names the setting, if that home directory is unknown.

  >>> expand_home('~/runs', '--workdir') == pathlib.Path.home() / 'runs'
  True
  >>> expand_home('~nosuchuser/runs', '--workdir')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: --workdir='~nosuchuser/runs': unknown home directory; use an absolute path
  """
  try:
    return pathlib.Path(path).expanduser()
  except RuntimeError as error:
    raise UserError(f'{setting}={os.fspath(path)!r}: unknown home directory; use an absolute path') from error


def cache_dir() -> pathlib.Path:
  """The cache directory: `$VRL_JAX_CACHE`, else `$XDG_CACHE_HOME/vrl_jax`, else `~/.cache/vrl_jax`; it may not exist.

  >>> from unittest import mock
  >>> with mock.patch.dict(os.environ, VRL_JAX_CACHE='/scratch/cache'):
  ...   print(cache_dir())
  /scratch/cache
  """
  if chosen := os.environ.get('VRL_JAX_CACHE'):
    return expand_home(chosen, 'VRL_JAX_CACHE')
  return expand_home(os.environ.get('XDG_CACHE_HOME') or '~/.cache', 'XDG_CACHE_HOME') / 'vrl_jax'


def checksum(data: np.ndarray | bytes, start: int = 0) -> int:
  """The CRC-32 of an array's bytes or of a byte string.

  Args:
    data: the array or the bytes.
    start: the checksum of the data before it.

  >>> checksum(np.arange(3)) == checksum(np.array([0, 1, 2])), checksum(np.arange(3)) == checksum(np.array([0, 1, 3]))
  (True, False)
  >>> checksum(b'cd', start=checksum(b'ab')) == checksum(b'abcd')
  True
  """
  if isinstance(data, np.ndarray):
    return zlib.crc32(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data, start)
  return zlib.crc32(data, start)


def sha256(data: bytes | str) -> str:
  """The SHA-256 of bytes or of a text, in hexadecimal.

  >>> sha256('period=20')[:12]
  'e487625063d0'
  """
  return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def file_sha256(path: str | os.PathLike) -> str:
  """The SHA-256 of a file's content, in hexadecimal.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'config.txt')
  ...   _ = path.write_text('period=20')
  ...   file_sha256(path) == sha256('period=20')
  True
  """
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


@contextlib.contextmanager
def atomic_path(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the path of a temporary file that replaces `path` at the end, or is removed if an exception was raised.

  The temporary file is in the same folder, has an unpredictable name and is synced to disk before it replaces `path`:
  a reader, also one after a crash, sees the old content or the new. It exists, empty and locked, from the start; the
  lock, which ends with the process, tells `remove_abandoned` that its writer is alive.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'x.npz')
  ...   with atomic_path(path) as temporary:
  ...     _ = temporary.write_text('new')
  ...     path.exists()
  ...   os.listdir(folder)
  False
  ['x.npz']
  """
  temporary = path.with_name(f'.{path.name}.{secrets.token_hex(8)}.tmp')
  with open(temporary, 'xb') as file:
    with contextlib.suppress(OSError):  # a file system without locks
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
      yield temporary
      with open(temporary, 'r+b') as written:
        os.fsync(written.fileno())
      temporary.replace(path)
    finally:
      with contextlib.suppress(OSError):  # FileNotFoundError after the replacement
        temporary.unlink()


def remove_abandoned(folder: pathlib.Path) -> None:
  """Removes the temporary files that killed processes have left in a folder; see `atomic_path`.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   folder = pathlib.Path(name)
  ...   (folder / '.x.npz.0123456789abcdef.tmp').touch()
  ...   with atomic_path(folder / 'y.npz') as temporary:
  ...     remove_abandoned(folder)
  ...     os.listdir(folder) == [temporary.name]
  True
  """
  with contextlib.suppress(FileNotFoundError, NotADirectoryError):
    for name in os.listdir(folder):
      path = folder / name
      if re.fullmatch(r'\..+\.[0-9a-f]{16}\.tmp', name) and stat.S_ISREG(path.lstat().st_mode):
        with contextlib.suppress(OSError), open(path, 'r+b') as file:
          fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the writer lives
          path.unlink()


def replace_text(path: pathlib.Path, text: str) -> None:
  """Writes a text file atomically.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'summary.json')
  ...   replace_text(path, 'old')
  ...   replace_text(path, 'new')
  ...   path.read_text()
  'new'
  """
  with atomic_path(path) as temporary:
    temporary.write_text(text)
