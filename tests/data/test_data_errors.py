"""Missing and damaged data files: launch.py prints one line with the file and the position, and writes nothing."""

import shutil

import numpy as np
import pytest
from support import data_samples as samples
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.refusals import refused


def truncate(path):
  path.write_bytes(path.read_bytes()[:-7])


def edit(path, old, new):
  path.write_bytes(path.read_bytes().replace(old, new, 1))


def change_features(folder, **arrays):
  samples.write_features(folder, samples.features() | arrays)


MNIST = 'train-images-idx3-ubyte'
DATA = {
  'MNIST: missing': ('lenet_mnist', lambda d: shutil.rmtree(d / 'mnist'), 'MNIST was not found'),
  'MNIST: a file is missing': ('lenet_mnist', lambda d: (d / 'mnist' / MNIST).unlink(), MNIST),
  'IDX: truncated': ('lenet_mnist', lambda d: truncate(d / 'mnist' / MNIST), MNIST),
  'IDX: empty': ('lenet_mnist', lambda d: (d / 'mnist' / MNIST).write_bytes(b''), MNIST),
  'IDX: wrong magic number': (
    'lenet_mnist',
    lambda d: edit(d / 'mnist' / MNIST, bytes([0, 0, 8, 3]), bytes([0, 0, 9, 3])),
    MNIST,
  ),
  'IDX: a label out of range': (
    'lenet_mnist',
    lambda d: edit(d / 'mnist' / 'train-labels-idx1-ubyte', b'\x09', b'\x0a'),
    'train-labels-idx1-ubyte',
  ),
  'IDX: fewer labels than images': (
    'lenet_mnist',
    lambda d: (d / 'mnist' / 'train-labels-idx1-ubyte').write_bytes(samples.idx(np.arange(9))),
    'the files do not match',
  ),
  'gzip: truncated': (
    'lenet_mnist',
    lambda d: (
      shutil.rmtree(d / 'mnist'),
      samples.write_mnist(d / 'mnist', compressed=True),
      truncate(d / 'mnist' / f'{MNIST}.gz'),
    ),
    f'{MNIST}.gz',
  ),
  'CSV: a label that is not a number': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'dbpedia_csv' / 'train.csv', b'3,', b'x,'),
    'train.csv, line 3',
  ),
  'CSV: a label out of range': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'dbpedia_csv' / 'train.csv', b'3,', b'33,'),
    'train.csv, line 3',
  ),
  'CSV: empty': ('textcnn_dbpedia', lambda d: (d / 'dbpedia_csv' / 'test.csv').write_bytes(b''), 'test.csv'),
  'CSV: not UTF-8': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'dbpedia_csv' / 'train.csv', 'été'.encode(), b'\xff\xfe'),
    'train.csv, line 1',
  ),
  'GloVe: one number too few': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'glove' / 'glove.6B.50d.txt', b'cat 3 ', b'cat '),
    'glove.6B.50d.txt, line 3',
  ),
  'GloVe: not a number': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'glove' / 'glove.6B.50d.txt', b'cat 3 ', b'cat x '),
    'glove.6B.50d.txt, line 3',
  ),
  'npz: truncated': (
    'mlp_tiny_imagenet',
    lambda d: truncate(d / 'inception_v3_features.npz'),
    'inception_v3_features.npz',
  ),
  'npz: not an npz file': (
    'mlp_tiny_imagenet',
    lambda d: (d / 'inception_v3_features.npz').write_text('hello'),
    'inception_v3_features.npz',
  ),
  'npz: pickled objects': (
    'mlp_tiny_imagenet',
    lambda d: change_features(d, y_train=np.array([{}] * 5)),
    'y_train',
  ),
  'npz: wrong width': (
    'mlp_tiny_imagenet',
    lambda d: change_features(d, x_train=np.zeros((5, 2047), np.float16)),
    'inception_v3_features.npz',
  ),
  'npz: not finite': (
    'mlp_tiny_imagenet',
    lambda d: change_features(d, x_train=np.full((5, 2048), np.nan, np.float16)),
    'inception_v3_features.npz',
  ),
}


@pytest.fixture
def data(tmp_path, monkeypatch):
  """Small versions of all three data sets, and no other data set that could be found."""
  monkeypatch.setenv('VRL_JAX_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'tfds'))
  samples.write_mnist(tmp_path / 'data' / 'mnist', compressed=False)
  samples.write_dbpedia(tmp_path / 'data' / 'dbpedia_csv')
  samples.write_glove(tmp_path / 'data' / 'glove')
  samples.write_features(tmp_path / 'data')
  return tmp_path / 'data'


@pytest.mark.parametrize('case', DATA)
def test_an_error_is_reported_in_one_line(case, data, tmp_path, capfd):
  task, damage, message = DATA[case]
  damage(data)
  argv = [
    f'--config={task}',
    f'--config.data_dir={data}',
    f'--workdir={tmp_path}/run',
    '--config.compilation_cache=False',
  ]
  refused(argv, message, tmp_path, capfd, status=3)
