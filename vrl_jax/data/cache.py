"""A cache of decoded arrays on disk, so that slow sources are decoded once.

It is in `vrl_jax.system.storage.cache_dir()` and can be deleted at any time. An entry is named after the paths of its sources
and the settings. It is valid as long as the sizes and modification times of the sources stay the same; the entry of a
changed source replaces the old one.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vrl_jax.data.sources.npz import read_npz
from vrl_jax.errors import DataError
from vrl_jax.system.storage import atomic_path, cache_dir, remove_abandoned, sha256

_FORMAT = 1  # to be raised when the meaning of the stored arrays changes
_FINGERPRINT = 'fingerprint'


def cached(
  name: str,
  build: Callable[[], dict[str, np.ndarray]],
  *,
  sources: Sequence[str | os.PathLike],
  settings: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
  """Returns the result of `build`, from the cache if the sources have not changed.

  A damaged entry is rebuilt. A cache directory that cannot be written is not an error.

  Args:
    name: the start of the entry's file name.
    build: reads the sources and returns arrays (no objects) by name.
    sources: the files that the result depends on.
    settings: plain values that the result also depends on.

  >>> import tempfile
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
  entry = cache_dir() / f'{name}-{sha256(identity)[:16]}.npz'
  with contextlib.suppress(DataError, OSError):
    arrays = read_npz(entry)
    if str(arrays.pop(_FINGERPRINT, '')) == _with_names(fingerprint, arrays):
      return arrays
  arrays = build()
  with contextlib.suppress(OSError):
    _write(entry, {**arrays, _FINGERPRINT: np.array(_with_names(fingerprint, arrays))})
  return arrays


def _with_names(fingerprint: str, arrays: Mapping[str, np.ndarray]) -> str:
  """Adds the names of the arrays: a damaged zip directory can lose members without any other sign."""
  return json.dumps([fingerprint, sorted(arrays)])


def _write(entry: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
  entry.parent.mkdir(parents=True, exist_ok=True)
  remove_abandoned(entry.parent)
  with atomic_path(entry) as temporary, open(temporary, 'wb') as file:
    np.savez(file, allow_pickle=False, **arrays)
