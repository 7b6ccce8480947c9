"""Reads the CSV files of DBPedia-14 row by row, so that the 560,000 texts are never all in memory."""

import csv
import os
from collections.abc import Iterator
from typing import IO, NamedTuple

from vrl_jax.data.sources import files
from vrl_jax.errors import DataError

FOLDER = 'dbpedia_csv'
CLASS_NAMES = (
  'Company',
  'EducationalInstitution',
  'Artist',
  'Athlete',
  'OfficeHolder',
  'MeanOfTransportation',
  'Building',
  'NaturalPlace',
  'Village',
  'Animal',
  'Plant',
  'Album',
  'Film',
  'WrittenWork',
)
_LABELS = {str(number): number - 1 for number in range(1, len(CLASS_NAMES) + 1)}


class Row(NamedTuple):
  """An example.

  Attributes:
    label: 0 to 13; in the file, 1 to 14.
    title: may be empty.
    text: the text.

  >>> CLASS_NAMES[Row(label=9, title='Felis', text=' a genus of cats').label]
  'Animal'
  """

  label: int
  title: str
  text: str


def read_rows(path: str | os.PathLike) -> Iterator[Row]:
  """Reads `train.csv` or `test.csv`, gzip or not; raises DataError as `parse_rows` does.

  >>> import gzip, pathlib, tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'train.csv')
  ...   _ = path.write_bytes(gzip.compress(b'10,"Felis"," a genus of cats"\\n'))
  ...   list(read_rows(path))
  [Row(label=9, title='Felis', text=' a genus of cats')]
  """
  with files.open_binary(path) as stream:
    yield from parse_rows(stream, path)


def parse_rows(stream: IO[bytes], path: str | os.PathLike) -> Iterator[Row]:
  """Parses rows of class (1 to 14), title and text; quotes inside a field are doubled.

  Args:
    stream: the content of the file.
    path: its path, for error messages.

  Yields:
    The rows, in the order of the file.

  Raises:
    DataError: a row does not have three columns, a class is not in 1..14, the quotes or the encoding are wrong, or the
      file is empty. The message gives the line.

  >>> import io
  >>> list(parse_rows(io.BytesIO(b'12,"Hunting High and Low"," the ""debut"" of a-ha"\\n'), 'train.csv'))
  [Row(label=11, title='Hunting High and Low', text=' the "debut" of a-ha')]
  >>> try:
  ...   list(parse_rows(io.BytesIO(b'15,"title","text"\\n'), 'train.csv'))
  ... except DataError as error:
  ...   print(str(error)[:46])
  train.csv, line 1: class '15' is not in 1..14:
  """
  lines = (files.decode(line, path, number) for number, line in files.read_lines(stream, path))
  reader = csv.reader(lines, strict=True)
  number = 0
  while True:
    try:
      columns = next(reader, None)
    except csv.Error as error:
      raise DataError(
        f'{path}, line {reader.line_num}: not CSV ({error}): the file is damaged or truncated; download it again'
      ) from error
    if columns is None:
      break
    number += 1
    if len(columns) != 3:
      raise DataError(
        f'{path}, line {reader.line_num}: has {len(columns)} columns, must have class, title and text: the file is '
        'damaged or belongs to another data set; download it again'
      )
    if columns[0] not in _LABELS:
      raise DataError(
        f'{path}, line {reader.line_num}: class {columns[0][:20]!r} is not in 1..{len(_LABELS)}: the file is damaged '
        'or belongs to another data set; download it again'
      )
    yield Row(_LABELS[columns[0]], columns[1], columns[2])
  if number == 0:
    raise DataError(f'{path}, line 1: the file has no rows: download it again')
