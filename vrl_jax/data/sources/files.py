"""Finds and reads data files, gzip or not, and reports problems as DataError."""

import contextlib
import gzip
import io
import os
import pathlib
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, BinaryIO

from vrl_jax.errors import DataError
from vrl_jax.system.storage import expand_home

_GZIP_MAGIC = b'\x1f\x8b'
MAX_INFLATED = 1 << 30  # bytes of a compressed file; the largest real one, the features of Tiny ImageNet, has 0.45e9
_MAX_LINE = 1 << 20  # bytes; the longest of DBPedia has 14,000


def as_folder(data_dir: str | os.PathLike | None) -> pathlib.Path | None:
  """The user's `data_dir` as a path; None if it is None or ''.

  >>> as_folder('~/data') == pathlib.Path.home() / 'data', as_folder('')
  (True, None)
  """
  return expand_home(data_dir, 'data_dir') if data_dir else None


def searched(data_dir: str | os.PathLike | None, folder: str) -> str:
  """The folders that `find_files` searches, for an error message.

  >>> searched('/data', 'mnist')
  '/data/mnist and /data'
  """
  root = as_folder(data_dir)
  return f'{root / folder} and {root}' if root else 'no data_dir (none was given)'


def find_files(
  data_dir: str | os.PathLike | None, folder: str, names: Sequence[str | tuple[str, ...]]
) -> list[pathlib.Path] | None:
  """Finds the files of a data set, each with or without `.gz`.

  Args:
    data_dir: the root of the user's data sets, or the sub-folder of this one, or None.
    folder: the name of the sub-folder.
    names: the file names; a tuple gives alternative names of one file.

  Returns:
    One path for each name; None if none of the files exists.

  Raises:
    DataError: some of the files exist and others do not.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for name in ('train.csv', 'test.csv.gz'):
  ...     pathlib.Path(folder, name).touch()
  ...   [path.name for path in find_files(folder, 'dbpedia_csv', ['train.csv', 'test.csv'])]
  ['train.csv', 'test.csv.gz']
  """
  root = as_folder(data_dir)
  if root is None:
    return None
  for place in (root / folder, root):
    alternatives = [(name,) if isinstance(name, str) else name for name in names]
    candidates = [_first_file(place, alternative) for alternative in alternatives]
    found = [path for path in candidates if path]
    if len(found) == len(names):
      return found
    if found:
      missing = ', '.join(f'{group[0]}[.gz]' for group, path in zip(alternatives, candidates) if path is None)
      raise DataError(f'{place}: {missing} is missing (other files of the data set are there): add it')
  return None


def _first_file(place: pathlib.Path, names: Sequence[str]) -> pathlib.Path | None:
  candidates = (place / (name + suffix) for name in names for suffix in ('', '.gz'))
  return next((path for path in candidates if path.is_file()), None)


@contextlib.contextmanager
def open_binary(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a file for reading bytes, and decompresses it if its content is gzip.

  The name does not matter: browsers decompress downloads and keep the name.

  Raises:
    DataError: the file cannot be read, or its gzip data are damaged, truncated or too large; also while the caller reads.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'words.txt')
  ...   _ = path.write_bytes(gzip.compress(b'one\\ntwo\\n'))
  ...   with open_binary(path) as stream:
  ...     list(stream)
  [b'one\\n', b'two\\n']
  """
  try:
    with open(path, 'rb') as raw:
      is_gzip = raw.read(2) == _GZIP_MAGIC
      raw.seek(0)
      try:
        yield io.BufferedReader(_Inflated(gzip.GzipFile(fileobj=raw), path)) if is_gzip else raw
      except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
          f'{path}: the gzip data are damaged or truncated near byte {raw.tell()} ({error}): download the file again'
        ) from error
  except OSError as error:
    raise DataError(
      f'{path}: cannot be read ({error.strerror or error}): check the file and its permissions'
    ) from error


class _Inflated(io.RawIOBase):
  """A decompressed stream of at most `MAX_INFLATED` bytes: a thousand times as many bytes as on disk are possible."""

  def __init__(self, stream, path):
    self._stream = stream
    self._path = path
    self._size = 0

  def readable(self):
    return True

  def readinto(self, buffer):
    data = self._stream.read(len(buffer))
    self._size += len(data)
    if self._size > MAX_INFLATED:
      raise DataError(
        f'{self._path}: has more than {MAX_INFLATED:,} bytes after decompression: it is damaged or another file; '
        'download the file again'
      )
    buffer[: len(data)] = data
    return len(data)


def read_lines(stream: IO[bytes], path: str | os.PathLike) -> Iterator[tuple[int, bytes]]:
  """Yields (line number from 1, line); raises DataError at a line that is too long to be text.

  >>> list(read_lines(io.BytesIO(b'one\\ntwo'), 'words.txt'))
  [(1, b'one\\n'), (2, b'two')]
  """
  number = 0
  while line := stream.readline(_MAX_LINE + 1):
    number += 1
    if len(line) > _MAX_LINE:
      raise DataError(
        f'{path}, line {number}: is longer than {_MAX_LINE:,} bytes: the file is damaged or another file; download it '
        'again'
      )
    yield number, line


def read_bytes(path: str | os.PathLike) -> bytes:
  """The decompressed content of a file; raises DataError as `open_binary` does.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'words.txt.gz')
  ...   _ = path.write_bytes(gzip.compress(b'one two'))
  ...   read_bytes(path)
  b'one two'
  """
  with open_binary(path) as stream:
    return stream.read()


def decode(line: bytes, path: str | os.PathLike, number: int) -> str:
  """Decodes one line of UTF-8.

  Raises:
    DataError: the line is not UTF-8. The message gives the line number (`number`) and the byte.

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
      f'{path}, line {number}, byte {error.start}: not UTF-8 text: the file is damaged or has another encoding; '
      'download it again'
    ) from error
