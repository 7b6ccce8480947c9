"""Reads `.npz` files without unpickling and verifies every checksum."""

import os
import zipfile
from collections.abc import Sequence

import numpy as np

from vrl_jax.data.sources import files
from vrl_jax.errors import DataError


def read_npz(path: str | os.PathLike, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
  """Reads arrays from an `.npz` file.

  `np.load` stops reading at an array's last value, which may be before the zip member's checksum is verified, so that a
  flipped byte goes unnoticed. This function reads each member to its end.

  Args:
    path: the file.
    names: the arrays to read; None reads all.

  Returns:
    The arrays by name.

  Raises:
    DataError: the file or one of the arrays is missing, damaged, truncated or pickled.

  >>> import pathlib, tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'arrays.npz')
  ...   np.savez(path, x=np.arange(3), y=np.zeros(2))
  ...   read_npz(path, ['x'])
  {'x': array([0, 1, 2])}
  """
  try:
    with zipfile.ZipFile(path) as archive:
      members = {member.removesuffix('.npy'): member for member in archive.namelist()}
      wanted = list(members) if names is None else list(names)
      missing = [name for name in wanted if name not in members]
      if missing:
        raise DataError(
          f'{path}: has no array {", ".join(missing)} (it has {", ".join(members) or "none"}): it is another file or '
          'was written by another version'
        )
      inflated = sum(
        info.file_size for info in map(archive.getinfo, (members[name] for name in wanted)) if info.compress_type
      )
      if inflated > files.MAX_INFLATED:
        raise DataError(
          f'{path}: has {inflated:,} bytes after decompression, must have at most {files.MAX_INFLATED:,}: it is damaged '
          'or another file'
        )
      return {name: _read_member(archive, members[name], path) for name in wanted}
  except DataError:
    raise
  except OSError as error:
    raise DataError(
      f'{path}: cannot be read ({error.strerror or error}): check the file and its permissions'
    ) from error
  except Exception as error:  # a damaged zip can raise nearly anything: struct, zlib, runtime, unicode, memory errors
    raise DataError(f'{path}: not a readable npz file ({error}): it is damaged or truncated; get it again') from error


def _read_member(archive: zipfile.ZipFile, member: str, path: str | os.PathLike) -> np.ndarray:
  try:
    with archive.open(member) as stream:
      array = np.lib.format.read_array(stream, allow_pickle=False)
      rest = stream.read(1)  # at the end this verifies the checksum
  except Exception as error:  # as above; NumPy can raise nearly anything for a damaged header
    raise DataError(
      f'{path}, array {member.removesuffix(".npy")}: cannot be read ({" ".join(str(error).split())}): the file is '
      'damaged or truncated, or has pickled objects; get it again'
    ) from error
  if rest:
    raise DataError(
      f'{path}, array {member.removesuffix(".npy")}: has bytes after its values: the file is damaged; get it again'
    )
  return array
