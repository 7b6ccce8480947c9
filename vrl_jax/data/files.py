"""Data files on disk: found in a folder, opened packed or not, and their troubles told in one line."""

import contextlib
import gzip
import io
import os
import pathlib
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from vrl_jax.errors import DataError

_GZIP_MAGIC = b'\x1f\x8b'


class NotFound(DataError):
  """A data set that is nowhere to be found, as opposed to one that is damaged."""


def as_folder(data_dir: str | os.PathLike | None) -> pathlib.Path | None:
  """The user's `data_dir` as a path; None and '' mean that none was given."""
  return pathlib.Path(data_dir).expanduser() if data_dir else None


def find_together(
  data_dir: str | os.PathLike | None, folder: str, names: Sequence[str | tuple[str, ...]]
) -> list[pathlib.Path] | None:
  """Finds files that belong together, each packed (`.gz`) or not.

  Args:
    data_dir: a root with the sub-folder `folder`, or that sub-folder itself, or None.
    folder: the standard name of the sub-folder.
    names: the file names; a tuple gives several spellings of one.

  Returns:
    One path for each name; None if there is not one of them.

  Raises:
    DataError: some are there and some are not.
  """
  root = as_folder(data_dir)
  if root is None:
    return None
  for place in (root / folder, root):
    spellings = [(name,) if isinstance(name, str) else name for name in names]
    found = [_first_file(place, spelling) for spelling in spellings]
    if all(found):
      return found
    if any(found):
      missing = ', '.join(f'{spelling[0]}[.gz]' for spelling, path in zip(spellings, found) if path is None)
      raise DataError(
        f'{place} has a part of the data set but not {missing}: put the missing file(s) beside the others'
      )
  return None


def _first_file(place: pathlib.Path, spellings: Sequence[str]) -> pathlib.Path | None:
  candidates = (place / (name + suffix) for name in spellings for suffix in ('', '.gz'))
  return next((path for path in candidates if path.is_file()), None)


@contextlib.contextmanager
def opened(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a file for reading bytes, unpacking it if it is gzip by content (names lie: browsers unpack downloads).

  Raises:
    DataError: the file cannot be read, or its gzip data are damaged or cut off, also while the caller reads.
  """
  try:
    with open(path, 'rb') as raw:
      packed = raw.read(2) == _GZIP_MAGIC
      raw.seek(0)
      try:
        yield io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed else raw
      except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
          f'{path}: the gzip data are damaged or cut off near byte {raw.tell()} ({error}): download the file again'
        ) from error
  except OSError as error:
    raise DataError(
      f'{path}: cannot be read ({error.strerror or error}): check the file and its permissions'
    ) from error


def read_bytes(path: str | os.PathLike) -> bytes:
  """The whole, unpacked content of a file; raises DataError as `opened` does."""
  with opened(path) as stream:
    return stream.read()


def decode(line: bytes, path: str | os.PathLike, number: int) -> str:
  """One line of UTF-8 text.

  Raises:
    DataError: it is not UTF-8; names the line (`number`) and the byte.
  """
  try:
    return line.decode('utf-8')
  except UnicodeDecodeError as error:
    raise DataError(
      f'{path}, line {number}, byte {error.start}: not UTF-8 text: the file is damaged or was saved in another '
      'encoding; download it again'
    ) from error
