"""Reading prepared data sets without a network: valid, damaged and of another format."""

import json

import numpy as np
import pytest
from support import data_samples as samples

from vrl_jax.data.sources import mnist
from vrl_jax.data.tfds import reader
from vrl_jax.errors import DataError

pytestmark = pytest.mark.usefixtures('no_network')


def prepare_small_mnist(tfds, data_dir, test='test', label='label'):
  """Prepares a data set as TFDS' builder does, but without TensorFlow."""
  from PIL import Image

  class Mnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = 'mnist'
    VERSION = tfds.core.Version('3.0.1')

    def _info(self):
      kinds = {'image': tfds.features.Image(shape=(28, 28, 1)), label: tfds.features.ClassLabel(num_classes=10)}
      return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(kinds))

    def _split_generators(self, dl_manager):
      return {'train': self._generate_examples(30), test: self._generate_examples(20)}

    def _generate_examples(self, size):
      for key, (image, digit) in enumerate(zip(*samples.mnist_arrays(size))):
        yield key, {'image': Image.fromarray(image), label: int(digit)}

  Mnist(data_dir=data_dir, file_format='array_record').download_and_prepare(file_format='array_record')


@pytest.mark.parametrize('place', ['tfds', 'data'])
def test_mnist_is_read_from_tfds_and_cached(tmp_path, tfds, place, monkeypatch):
  prepare_small_mnist(tfds, tmp_path / place)
  splits = mnist.load_mnist(tmp_path / 'data')
  for split, size in (('train', 30), ('test', 20)):
    arrays = getattr(splits, split)
    assert arrays['image'].shape == (size, 28, 28) and arrays['image'].dtype == np.uint8
    images, labels = samples.mnist_arrays(size)
    found = {image.tobytes(): label for image, label in zip(arrays['image'], arrays['label'])}
    assert found == {image.tobytes(): label for image, label in zip(images, labels)}
  monkeypatch.setattr(reader, 'read_prepared', None)
  again = mnist.load_mnist(tmp_path / 'data')
  np.testing.assert_array_equal(again.train['image'], splits.train['image'])
  samples.write_mnist(tmp_path / 'data' / 'mnist', compressed=False)  # original files are preferred
  np.testing.assert_array_equal(mnist.load_mnist(tmp_path / 'data').train['image'], samples.mnist_arrays(30)[0])


@pytest.mark.parametrize('damage', [{'test': 'validation'}, {'label': 'digit'}])
def test_a_missing_split_or_feature_is_a_data_error(tmp_path, tfds, damage):
  prepare_small_mnist(tfds, tmp_path / 'tfds', **damage)
  with pytest.raises(DataError, match="has no split 'test'|cannot be read .'label'"):
    mnist.load_mnist()


@pytest.mark.parametrize('name', ['dataset_info.json', 'features.json', 'mnist-test.array_record-00000-of-00001'])
@pytest.mark.parametrize('damage', [lambda data: b'', lambda data: data[: len(data) // 2], lambda data: None])
def test_a_damaged_prepared_data_set_is_a_data_error(tmp_path, tfds, name, damage):
  prepare_small_mnist(tfds, tmp_path / 'tfds')
  path = tmp_path / 'tfds' / 'mnist' / '3.0.1' / name
  data = damage(path.read_bytes())
  path.unlink() if data is None else path.write_bytes(data)
  with pytest.raises(DataError, match=r'^[^\n]*(remove .*and prepare it again|MNIST was not found)[^\n]*$'):
    mnist.load_mnist()


def test_tfrecord_is_refused(tmp_path):
  folder = tmp_path / 'tfds' / 'mnist' / '3.0.1'
  folder.mkdir(parents=True)
  (folder / 'dataset_info.json').write_text(json.dumps({'name': 'mnist'}))
  with pytest.raises(DataError, match='prepared as tfrecord, which only TensorFlow reads: set TFDS_DATA_DIR'):
    mnist.load_mnist()


def test_the_newest_version_is_read(tmp_path):
  for version in ('9.0.0', '10.0.0', '10.0.0.incomplete'):
    (tmp_path / 'tfds' / 'mnist' / version).mkdir(parents=True)
    (tmp_path / 'tfds' / 'mnist' / version / 'dataset_info.json').touch()
  assert reader.find_prepared('mnist').name == '10.0.0'
