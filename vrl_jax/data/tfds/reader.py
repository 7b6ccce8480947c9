"""Reads data sets that TFDS has prepared on this machine, without TensorFlow and without a network."""

import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from vrl_jax.data.sources import files
from vrl_jax.errors import DataError, require_extra
from vrl_jax.system.storage import expand_home


def tfds_dir() -> pathlib.Path:
  """TFDS' data directory: `$TFDS_DATA_DIR` or `~/tensorflow_datasets`.

  >>> from unittest import mock
  >>> with mock.patch.dict(os.environ, TFDS_DATA_DIR='/scratch/tfds'):
  ...   print(tfds_dir())
  /scratch/tfds
  """
  return expand_home(os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets', 'TFDS_DATA_DIR')


def manual_dir() -> pathlib.Path:
  """The folder where TFDS expects archives that were downloaded by hand; `prepare_data` downloads into it.

  >>> manual_dir().relative_to(tfds_dir()).parts
  ('downloads', 'manual')
  """
  return tfds_dir() / 'downloads' / 'manual'


def find_prepared(name: str, data_dir: str | os.PathLike | None = None) -> pathlib.Path | None:
  """Finds the newest prepared version of a data set, without importing TFDS.

  Args:
    name: the name of the TFDS data set.
    data_dir: a folder to search before `tfds_dir()`.

  Returns:
    The folder `<data_dir>/<name>/<version>` or `<tfds_dir>/<name>/<version>`, or None.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for version in ('3.0.9', '3.0.10'):
  ...     place = pathlib.Path(folder, 'mnist', version)
  ...     place.mkdir(parents=True)
  ...     (place / 'dataset_info.json').touch()
  ...   find_prepared('mnist', folder).name
  '3.0.10'
  """
  for place in (files.as_folder(data_dir), tfds_dir()):
    versions = [info.parent for info in place.glob(f'{name}/*/dataset_info.json')] if place else []
    if versions := [path for path in versions if path.name.replace('.', '').isdecimal()]:
      return max(versions, key=lambda path: [int(part) for part in path.name.split('.') if part])
  return None


def source_files(folder: pathlib.Path) -> list[pathlib.Path]:
  """The files of a prepared data set.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for name in ('mnist-train.array_record', 'dataset_info.json'):
  ...     pathlib.Path(folder, name).touch()
  ...   [path.name for path in source_files(pathlib.Path(folder))]
  ['dataset_info.json', 'mnist-train.array_record']
  """
  return sorted(path for path in folder.iterdir() if path.is_file())


def read_prepared(folder: pathlib.Path, split: str, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
  """Yields the examples of a split in the order in which TFDS stored them, which is shuffled but fixed.

  Args:
    folder: the folder of the prepared data set, from `find_prepared`.
    split: the name of the split.
    names: the features to return of each example; texts are bytes.

  Raises:
    DataError: the file format is not array_record, a split or feature is missing, or a file is damaged.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   _ = pathlib.Path(folder, 'dataset_info.json').write_text('{"fileFormat": "tfrecord"}')
  ...   try:
  ...     next(read_prepared(pathlib.Path(folder), 'train', ['image', 'label']))
  ...   except DataError as error:
  ...     print(str(error).removeprefix(folder)[:55])
  : prepared as tfrecord, which only TensorFlow reads: se
  """
  require_extra('train', f'reading {folder}', 'tensorflow_datasets')
  again = f'remove {folder} and prepare it again with python -m vrl_jax.tools.prepare_data'
  try:
    file_format = json.loads((folder / 'dataset_info.json').read_text('utf-8')).get('fileFormat', 'tfrecord')
    if file_format != 'array_record':
      raise DataError(
        f'{folder}: prepared as {file_format}, which only TensorFlow reads: set TFDS_DATA_DIR to a new folder and '
        'prepare the data set again (as array_record) with python -m vrl_jax.tools.prepare_data'
      )
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(folder)
    if split not in builder.info.splits:
      raise DataError(f'{folder}: has no split {split!r} (it has {", ".join(builder.info.splits)}): {again}')
    for example in builder.as_data_source(split=split):
      yield tuple(example[name] for name in names)
  except DataError:
    raise
  except Exception as error:  # TFDS, protobuf and array_record have their own exceptions for damaged files
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]  # without the C++ stack
    raise DataError(f'{folder}, split {split!r}: cannot be read ({reason}): {again}') from error
