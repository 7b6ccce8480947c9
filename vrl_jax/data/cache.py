"""Decoded arrays kept on disk, so that slow sources are read once.

The cache lives in `$VRL_JAX_CACHE`, else `$XDG_CACHE_HOME/vrl_jax`, else `~/.cache/vrl_jax`. An entry belongs to its
source files' paths and the settings, and is valid while their sizes and times of change stay the same; a new version
of a source takes the old entry's place. It can be deleted at any time.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vrl_jax.data.npz import read_npz
from vrl_jax.errors import DataError

_FORMAT = 1  # raise it when the meaning of what is stored changes
_FINGERPRINT = 'fingerprint'


def cache_dir() -> pathlib.Path:
  """The folder of the cache; it need not exist.

  >>> from unittest import mock
  >>> with mock.patch.dict(os.environ, VRL_JAX_CACHE='/scratch/cache'):
  ...   print(cache_dir())
  /scratch/cache
  """
  if chosen := os.environ.get('VRL_JAX_CACHE'):
    return pathlib.Path(chosen).expanduser()
  return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'vrl_jax'


def cached(
  name: str,
  build: Callable[[], dict[str, np.ndarray]],
  *,
  sources: Sequence[str | os.PathLike],
  settings: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
  """Returns what `build` returns, from the cache if the sources have not changed.

  A damaged entry is built anew; a folder that cannot be written only costs the time to build again.

  Args:
    name: the start of the entry's file name.
    build: reads the sources and returns arrays (no objects) by name.
    sources: the files that the result depends on.
    settings: what else it depends on; plain values.

  >>> from unittest import mock
  >>> def build():
  ...   print('reading the source')
  ...   return {'x': np.loadtxt(source)}
  >>> with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, VRL_JAX_CACHE=folder):
  ...   source = pathlib.Path(folder, 'numbers.txt')
  ...   _ = source.write_text('1 2 3')
  ...   for _ in range(2):
  ...     print(cached('numbers', build, sources=[source])['x'])
  reading the source
  [1. 2. 3.]
  [1. 2. 3.]
  """
  paths = [os.path.realpath(source) for source in sources]
  identity = json.dumps([paths, dict(settings or {})], sort_keys=True)
  stats = [os.stat(path) for path in paths]
  fingerprint = json.dumps([_FORMAT, identity, [[stat.st_size, stat.st_mtime_ns] for stat in stats]])
  entry = cache_dir() / f'{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.npz'
  with contextlib.suppress(DataError, OSError):
    arrays = read_npz(entry)
    if str(arrays.pop(_FINGERPRINT, '')) == _signed(fingerprint, arrays):
      return arrays
  arrays = build()
  with contextlib.suppress(OSError):
    _write(entry, {**arrays, _FINGERPRINT: np.array(_signed(fingerprint, arrays))})
  return arrays


def _signed(fingerprint: str, arrays: Mapping[str, np.ndarray]) -> str:
  """With the names of the arrays: a damaged zip directory can lose some without another sign."""
  return json.dumps([fingerprint, sorted(arrays)])


def _write(entry: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
  entry.parent.mkdir(parents=True, exist_ok=True)
  handle, temporary = tempfile.mkstemp(dir=entry.parent, prefix=entry.stem, suffix='.tmp')
  try:
    with os.fdopen(handle, 'wb') as stream:
      np.savez(stream, allow_pickle=False, **arrays)
    os.replace(temporary, entry)  # another process sees the old entry or the whole new one
  finally:
    with contextlib.suppress(FileNotFoundError):
      os.unlink(temporary)
