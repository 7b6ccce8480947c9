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
  """A data set that is nowhere to be found, as opposed to one that is damaged.

  >>> try:
  ...   raise NotFound('MNIST was not found')
  ... except DataError as error:
  ...   print(f'{error}, so it may be downloaded')
  MNIST was not found, so it may be downloaded
  """


def as_folder(data_dir: str | os.PathLike | None) -> pathlib.Path | None:
  """The user's `data_dir` as a path; None and '' mean that none was given.

  >>> as_folder('~/data') == pathlib.Path.home() / 'data', as_folder('')
  (True, None)
  """
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

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for name in ('train.csv', 'test.csv.gz'):
  ...     pathlib.Path(folder, name).touch()
  ...   [path.name for path in find_together(folder, 'dbpedia_csv', ['train.csv', 'test.csv'])]
  ['train.csv', 'test.csv.gz']
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

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'words.txt')  # a lying name
  ...   _ = path.write_bytes(gzip.compress(b'one\\ntwo\\n'))
  ...   with opened(path) as stream:
  ...     list(stream)
  [b'one\\n', b'two\\n']
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
  """The whole, unpacked content of a file; raises DataError as `opened` does.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'words.txt.gz')
  ...   _ = path.write_bytes(gzip.compress(b'one two'))
  ...   read_bytes(path)
  b'one two'
  """
  with opened(path) as stream:
    return stream.read()


def decode(line: bytes, path: str | os.PathLike, number: int) -> str:
  """One line of UTF-8 text.

  Raises:
    DataError: it is not UTF-8; names the line (`number`) and the byte.

  >>> decode('été'.encode(), 'words.txt', number=1)
  'été'
  >>> try:
  ...   decode('été'.encode('latin1'), 'words.txt', number=7)
  ... except DataError as error:
  ...   print(str(error)[:45])
  words.txt, line 7, byte 0: not UTF-8 text: th
  """
  try:
    return line.decode('utf-8')
  except UnicodeDecodeError as error:
    raise DataError(
      f'{path}, line {number}, byte {error.start}: not UTF-8 text: the file is damaged or was saved in another '
      'encoding; download it again'
    ) from error
