"""Downloads of the archives, from a server on this machine."""

import hashlib
import http.server
import threading
import time

import pytest

from vrl_jax.data.sources import archives
from vrl_jax.errors import DataError

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
      pass  # the client gave up, as it should

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


def test_an_archive_is_downloaded_once(url, tmp_path):
  path = archives.download(archive(f'{url}/file.zip'), tmp_path / 'new' / 'folder')
  assert path == tmp_path / 'new' / 'folder' / 'file.zip' and path.read_bytes() == CONTENT
  assert archives.download(archive('http://127.0.0.1:1/file.zip'), path.parent) == path


@pytest.mark.parametrize('name', ['absent', 'cut'])
def test_a_failed_download_leaves_no_file(url, tmp_path, name):
  with pytest.raises(DataError, match=rf'/{name} could not be downloaded .*save it as .*{name}'):
    archives.download(archive(f'{url}/{name}'), tmp_path)
  assert not list(tmp_path.iterdir())


def test_a_wrong_checksum_is_refused(url, tmp_path):
  with pytest.raises(DataError, match='got 700000 bytes with SHA-256 .*, not 0000'):
    archives.download(archive(f'{url}/file.zip', '0' * 64), tmp_path)
  assert not list(tmp_path.iterdir())


def test_the_timeout_is_kept(url, tmp_path):
  start = time.monotonic()
  with pytest.raises(DataError, match='not finished after 0.5 s'):
    archives.download(archive(f'{url}/slow'), tmp_path, timeout=0.5)
  assert time.monotonic() - start < 5
