"""Splits texts into words and maps them to integer ids."""

import array
import itertools
from collections.abc import Iterable, Mapping

import numpy as np


def tokenise(texts: Iterable[str], ids: Mapping[str, int], *, length: int, lowercase: bool) -> np.ndarray:
  """Maps texts to the ids of their first known words.

  Args:
    texts: the texts; iterated once.
    ids: the id (≥ 1) of each known word; other words are skipped.
    length: the number of words to keep of each text.
    lowercase: whether to lower-case the texts first.

  Returns:
    int32 [number of texts, length]; short texts are padded with 0.

  >>> tokenise(['The cat sat', 'a dog'], {'the': 1, 'cat': 2, 'sat': 3}, length=2, lowercase=True)
  array([[1, 2],
         [0, 0]], dtype=int32)
  """
  flat = array.array('i')
  padding = [0] * length
  for text in texts:
    words = (text.lower() if lowercase else text).split()
    known = list(itertools.islice(filter(None, map(ids.get, words)), length))
    flat.extend(known)
    flat.extend(padding[len(known) :])
  return np.array(flat, np.int32).reshape(-1, length)
