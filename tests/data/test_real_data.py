"""The real data sets, complete or in part, in the folder $VRL_JAX_DATA."""

import hashlib
import time

import numpy as np
import pytest

from vrl_jax.data.sources import dbpedia, files, mnist, tiny_imagenet
from vrl_jax.data.sources.archives import MNIST
from vrl_jax.data.sources.dbpedia_csv import CLASS_NAMES


def test_mnist(real_data):
  splits = mnist.load_mnist(real_data)
  assert splits.train['image'].shape == (60000, 28, 28) and splits.test['image'].shape == (10000, 28, 28)
  assert np.bincount(splits.train['label']).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
  assert np.bincount(splits.test['label']).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
  assert splits.train['label'][:5].tolist() == [5, 0, 4, 1, 9] and splits.train['label'][-3:].tolist() == [5, 6, 8]
  assert splits.test['label'][:5].tolist() == [7, 2, 1, 0, 4] and splits.test['label'][-3:].tolist() == [4, 5, 6]
  pixels = splits.train['image'] / np.float64(255)
  assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (0.1307, 0.3081)
  assert splits.train['image'][0, 5, 12:16].tolist() == [3, 18, 18, 18]


def test_the_size_and_checksum_of_mnist_archives(real_data):
  if not all((real_data / 'mnist' / archive.name).is_file() for archive in MNIST):
    pytest.skip('needs the four gzip files')
  data = (real_data / 'mnist' / MNIST[0].name).read_bytes()
  assert hashlib.md5(data, usedforsecurity=False).hexdigest() == 'f68b3c2dcbeaaa9fbdd348bbdeb94873'
  for archive in MNIST:
    data = (real_data / 'mnist' / archive.name).read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (archive.size, archive.sha256)


def test_mnist_5k_images_are_images_of_mnist(real_data):
  full = mnist.load_mnist(real_data)
  labels = {image.tobytes(): label for image, label in zip(full.train['image'], full.train['label'])}
  subset = mnist.load_mnist_5k()
  for arrays in (subset.train, subset.test):
    assert [labels.get(image.tobytes()) for image in arrays['image']] == arrays['label'].tolist()


def test_dbpedia_rows(real_data):
  texts = dbpedia.open_dbpedia(real_data)
  for rows in (texts.train, texts.test):
    counts = np.bincount([row.label for row in rows()])
    assert len(set(counts.tolist())) == 1 and len(counts) == 14  # balanced
  names = files.read_bytes(real_data / 'dbpedia_csv' / 'classes.txt').decode().split()
  assert tuple(names) == CLASS_NAMES


@pytest.mark.parametrize('lowercase', [True, False])
def test_dbpedia_tokens(real_data, lowercase):
  start = time.monotonic()
  splits, embedding = dbpedia.load_dbpedia(real_data, lowercase=lowercase)
  elapsed = time.monotonic() - start
  if (real_data / 'dbpedia_csv' / 'train.csv.gz').stat().st_size != 8942022:
    pytest.skip('not the subset of DBPedia-14 that these numbers are from')
  assert elapsed < 20
  assert splits.train['tokens'].shape == (77854, 50) and splits.test['tokens'].shape == (7308, 50)
  assert np.bincount(splits.train['label']).tolist() == [5561] * 14
  assert np.bincount(splits.test['label']).tolist() == [522] * 14
  assert embedding.shape[1] == 50 and not embedding[0].any() and embedding[1:].any(axis=1).all()
  used = np.union1d(splits.train['tokens'], splits.test['tokens'])
  np.testing.assert_array_equal(used, np.arange(len(embedding)))
  the = np.array([0.418, 0.2496, -0.4124], np.float32)
  np.testing.assert_array_equal(embedding[1, :3], the)
  # 'The Benito roundleaf bat (Hipposideros beatus) is a species of bat …' with an empty title; class 10, Animal
  assert splits.train['label'][0] == 9 and splits.test['label'][-1] == 4
  first = embedding[splits.train['tokens'][0, 0], :3]
  assert np.array_equal(first, the) == lowercase
  filled = (splits.train['tokens'] > 0).sum(axis=1)
  padded = np.arange(50) >= filled[:, None]
  assert not splits.train['tokens'][padded].any()  # zeros only at the end
  assert (len(embedding) - 1, int(filled.sum())) == ((92057, 2746994) if lowercase else (48023, 2220382))


def test_tiny_imagenet_features(real_data):
  splits = tiny_imagenet.load_tiny_imagenet_features(real_data)
  for arrays, per_class in ((splits.train, 50), (splits.test, 10)):
    if len(arrays['label']) == 200 * per_class:
      np.testing.assert_array_equal(arrays['label'], np.arange(200 * per_class) % 200)
    assert arrays['feature'].shape == (len(arrays['label']), 2048) and arrays['feature'].dtype == np.float16
    assert arrays['feature'].min() >= 0 and len(np.unique(arrays['label'])) == 200
