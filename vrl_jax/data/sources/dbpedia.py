"""DBPedia-14 as rows of GloVe word ids, for TextCNN."""

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from vrl_jax.data.cache import cached
from vrl_jax.data.sources import files
from vrl_jax.data.sources.archives import DBPEDIA
from vrl_jax.data.sources.dbpedia_csv import CLASS_NAMES, FOLDER, Row, read_rows
from vrl_jax.data.sources.glove import find_glove, read_glove
from vrl_jax.data.sources.splits import Splits
from vrl_jax.data.sources.tokens import tokenise
from vrl_jax.data.tfds import reader
from vrl_jax.errors import DataNotFound, UserError

_TFDS_NAME = 'dbpedia14'


class Texts(NamedTuple):
  """The rows of both splits and the files that they come from.

  Attributes:
    train: returns a new iterator over the training rows.
    test: returns a new iterator over the test rows.
    sources: the files.

  >>> texts = Texts(train=lambda: iter([Row(9, 'Felis', 'a genus of cats')]), test=lambda: iter([]), sources=[])
  >>> [CLASS_NAMES[row.label] for row in texts.train()]
  ['Animal']
  """

  train: Callable[[], Iterator[Row]]
  test: Callable[[], Iterator[Row]]
  sources: list[pathlib.Path]


def open_dbpedia(data_dir: str | os.PathLike | None = None) -> Texts:
  """Finds DBPedia-14 without reading it.

  Searches `data_dir/dbpedia_csv` and `data_dir` for `train.csv` and `test.csv` (gzip or not), then `data_dir` and TFDS'
  data directory for the prepared TFDS data set `dbpedia14`, whose examples are in a different order.

  Raises:
    DataNotFound: DBPedia-14 was not found.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   for split in ('train', 'test'):
  ...     _ = pathlib.Path(folder, f'{split}.csv').write_text('10,"Felis"," a genus of cats"\\n')
  ...   next(open_dbpedia(folder).train())
  Row(label=9, title='Felis', text=' a genus of cats')
  """
  if found := files.find_files(data_dir, FOLDER, ['train.csv', 'test.csv']):
    return Texts(lambda: read_rows(found[0]), lambda: read_rows(found[1]), found)
  if folder := reader.find_prepared(_TFDS_NAME, data_dir):
    return Texts(
      lambda: _prepared_rows(folder, 'train'), lambda: _prepared_rows(folder, 'test'), reader.source_files(folder)
    )
  raise DataNotFound(
    f'DBPedia-14 was not found: searched {files.searched(data_dir, FOLDER)} for train.csv[.gz] and test.csv[.gz] and '
    f'{reader.tfds_dir()} for the TFDS data set {_TFDS_NAME}; run python -m vrl_jax.tools.prepare_data dbpedia, or '
    f'unpack {DBPEDIA.url} into {files.as_folder(data_dir) or "<data_dir>"}'
  )


def load_dbpedia(
  data_dir: str | os.PathLike | None = None, *, lowercase: bool, length: int = 50
) -> tuple[Splits, np.ndarray]:
  """Loads DBPedia-14 as word ids, and the embedding table that the ids index.

  The title and text of an example are split at white space; the first `length` words that GloVe has are kept, and short
  examples are padded with 0. The table has only the words that occur (in either split), in GloVe's order, so that it
  fits on any device. The result is cached.

  Args:
    data_dir: the root of the user's data sets, with `dbpedia_csv/` and `glove/` (see `open_dbpedia`, `find_glove`).
    lowercase: whether to lower-case the texts first. GloVe's words are lower-case, so without it capitalised words are
      skipped.
    length: the number of words to keep.

  Returns:
    Splits with 'tokens' (int32 [n, length]) and 'label' (int32 [n]), and the table, float32 [words + 1, 50], whose
    row 0 is zero.

  Raises:
    DataNotFound: DBPedia-14 or GloVe was not found.
    DataError: a file is damaged.
    UserError: `length` is less than 1.

  >>> import tempfile
  >>> from unittest import mock
  >>> with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, VRL_JAX_CACHE=folder):
  ...   vector = ' '.join(['0.5'] * 50)
  ...   _ = pathlib.Path(folder, 'glove.6B.50d.txt').write_text(f'a {vector}\\ncats {vector}\\nof {vector}\\n')
  ...   for split in ('train', 'test'):
  ...     _ = pathlib.Path(folder, f'{split}.csv').write_text('10,"Felis"," a genus of Cats"\\n')
  ...   splits, table = load_dbpedia(folder, lowercase=True, length=5)
  >>> splits.train['tokens'], splits.train['label'], table.shape
  (array([[1, 3, 2, 0, 0]], dtype=int32), array([9], dtype=int32), (4, 50))
  """
  if length < 1:
    raise UserError(f'length={length}, must be at least 1')
  texts = open_dbpedia(data_dir)
  glove_files = find_glove(data_dir)
  arrays = cached(
    'dbpedia',
    lambda: _build(texts, glove_files, lowercase, length),
    sources=[*texts.sources, *glove_files],
    settings={'lowercase': bool(lowercase), 'length': int(length)},
  )
  train, test = ({name: arrays[f'{split}_{name}'] for name in ('tokens', 'label')} for split in ('train', 'test'))
  return Splits(train, test, CLASS_NAMES), arrays['embedding']


def _build(texts: Texts, glove_files: list[pathlib.Path], lowercase: bool, length: int) -> dict[str, np.ndarray]:
  glove = read_glove(glove_files)
  ids = {word: row for row, word in enumerate(glove.words, 1)}
  arrays = {}
  for split, rows in (('train', texts.train), ('test', texts.test)):
    labels: list[int] = []
    arrays[f'{split}_tokens'] = tokenise(_title_and_text(rows(), labels), ids, length=length, lowercase=lowercase)
    arrays[f'{split}_label'] = np.array(labels, np.int32)
  occurs = np.zeros(len(glove.words) + 1, bool)
  for split in ('train', 'test'):
    occurs[arrays[f'{split}_tokens']] = True
  occurs[0] = True
  new_id = np.cumsum(occurs, dtype=np.int32) - 1
  for split in ('train', 'test'):
    arrays[f'{split}_tokens'] = new_id[arrays[f'{split}_tokens']]
  padding = np.zeros((1, glove.vectors.shape[1]), np.float32)
  return {**arrays, 'embedding': np.concatenate([padding, glove.vectors[occurs[1:]]])}


def _title_and_text(rows: Iterable[Row], labels: list[int]) -> Iterator[str]:
  """Yields the text of each row and appends its label to `labels`, so that the rows are read once."""
  for row in rows:
    labels.append(row.label)
    yield f'{row.title} {row.text}'


def _prepared_rows(folder: pathlib.Path, split: str) -> Iterator[Row]:
  for label, title, text in reader.read_prepared(folder, split, ['label', 'title', 'text']):
    yield Row(int(label), title.decode(), text.decode())
