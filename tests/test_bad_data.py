"""Data files that are missing or damaged, through the real command line: one line with the file and the place."""

import importlib.util
import shutil

import numpy as np
import pytest
from inprocess import compiled_once as compiled_once
from launches import ROOT
from refusals import refused

spec = importlib.util.spec_from_file_location('data_samples', ROOT / 'tests' / 'data' / 'samples.py')
samples = importlib.util.module_from_spec(spec)
spec.loader.exec_module(samples)


def cut(path):
  path.write_bytes(path.read_bytes()[:-7])


def edit(path, old, new):
  path.write_bytes(path.read_bytes().replace(old, new, 1))


def change_features(folder, **arrays):
  samples.write_features(folder, samples.features() | arrays)


MNIST = 'train-images-idx3-ubyte'
DATA = {
  'MNIST is not there': ('lenet_mnist', lambda d: shutil.rmtree(d / 'mnist'), 'MNIST was not found'),
  'MNIST: a file is missing': ('lenet_mnist', lambda d: (d / 'mnist' / MNIST).unlink(), MNIST),
  'IDX: cut off': ('lenet_mnist', lambda d: cut(d / 'mnist' / MNIST), MNIST),
  'IDX: empty': ('lenet_mnist', lambda d: (d / 'mnist' / MNIST).write_bytes(b''), MNIST),
  'IDX: another magic number': (
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
    'do not belong together',
  ),
  'gzip: cut off': (
    'lenet_mnist',
    lambda d: (
      shutil.rmtree(d / 'mnist'),
      samples.write_mnist(d / 'mnist', packed=True),
      cut(d / 'mnist' / f'{MNIST}.gz'),
    ),
    f'{MNIST}.gz',
  ),
  'CSV: a label that is no number': (
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
  'CSV: no UTF-8': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'dbpedia_csv' / 'train.csv', 'été'.encode(), b'\xff\xfe'),
    'train.csv, line 1',
  ),
  'GloVe: a number less': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'glove' / 'glove.6B.50d.txt', b'cat 3 ', b'cat '),
    'glove.6B.50d.txt, line 3',
  ),
  'GloVe: no number': (
    'textcnn_dbpedia',
    lambda d: edit(d / 'glove' / 'glove.6B.50d.txt', b'cat 3 ', b'cat x '),
    'glove.6B.50d.txt, line 3',
  ),
  'npz: cut off': ('mlp_tiny_imagenet', lambda d: cut(d / 'inception_v3_features.npz'), 'inception_v3_features.npz'),
  'npz: no npz': (
    'mlp_tiny_imagenet',
    lambda d: (d / 'inception_v3_features.npz').write_text('hello'),
    'inception_v3_features.npz',
  ),
  'npz: an array with pickled objects': (
    'mlp_tiny_imagenet',
    lambda d: change_features(d, y_train=np.array([{}] * 5)),
    'y_train',
  ),
  'npz: another width': (
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
  """All three data sets, small, and no other place to find them."""
  monkeypatch.setenv('VRL_JAX_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'tfds'))
  samples.write_mnist(tmp_path / 'data' / 'mnist', packed=False)
  samples.write_dbpedia(tmp_path / 'data' / 'dbpedia_csv')
  samples.write_glove(tmp_path / 'data' / 'glove')
  samples.write_features(tmp_path / 'data')
  return tmp_path / 'data'


@pytest.mark.parametrize('case', DATA)
def test_data_files(case, data, tmp_path, capfd):
  task, damage, told = DATA[case]
  damage(data)
  argv = [
    f'--config={task}',
    f'--config.data_dir={data}',
    f'--workdir={tmp_path}/run',
    '--config.compilation_cache=False',
  ]
  refused(argv, told, tmp_path, capfd, status=3)
