"""The original archives of the data sets: URL, size and SHA-256, and their download with a time limit."""

import http.client
import os
import pathlib
import time
import urllib.request
from typing import NamedTuple

import tqdm

from vrl_jax.errors import DataError
from vrl_jax.system.storage import atomic_path, file_sha256, remove_abandoned

_SILENCE = 20  # seconds without a byte after which a server counts as unreachable
_CHUNK = 1 << 20


class Archive(NamedTuple):
  """A file to download.

  Attributes:
    url: its address.
    size: its size in bytes.
    sha256: its SHA-256 in hexadecimal.

  >>> Archive('https://example.org/data/train.csv.gz', size=1234, sha256='…').name
  'train.csv.gz'
  >>> sum(archive.size for archive in MNIST)
  11594722
  """

  url: str
  size: int
  sha256: str

  @property
  def name(self) -> str:
    """The file name."""
    return self.url.rsplit('/', 1)[1]


def _mnist(name: str, size: int, sha256: str) -> Archive:
  return Archive(f'https://storage.googleapis.com/cvdf-datasets/mnist/{name}', size, sha256)


# Sizes and checksums from TFDS' url_checksums/mnist.txt; verified against the original files.
MNIST = (
  _mnist('train-images-idx3-ubyte.gz', 9912422, '440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609'),
  _mnist('train-labels-idx1-ubyte.gz', 28881, '3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c'),
  _mnist('t10k-images-idx3-ubyte.gz', 1648877, '8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6'),
  _mnist('t10k-labels-idx1-ubyte.gz', 4542, 'f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6'),
)
# As published in Hugging Face's dataset_infos.json for dbpedia_14 and in FastAI.jl.
DBPEDIA = Archive(
  'https://s3.amazonaws.com/fast-ai-nlp/dbpedia_csv.tgz',
  68341743,
  '42db5221ddedddb673a4cabcc5f3a7d869714c878bcfe4ba94b29d14aa38e417',
)
# As stated by several public projects that verify this file (its MD5: 90528d7ca1a48142e341f4ef8d21d0de).
TINY_IMAGENET = Archive(
  'http://cs231n.stanford.edu/tiny-imagenet-200.zip',
  248100043,
  '6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821',
)


def download(archive: Archive, folder: str | os.PathLike, *, timeout: float = 1800) -> pathlib.Path:
  """Downloads an archive into `folder`, unless the file already exists.

  Gives up after 20 s without a byte, or after `timeout` seconds. (Without a network, TFDS itself retries for minutes.)

  Args:
    archive: the archive to download.
    folder: the destination; created if it does not exist.
    timeout: the time limit in seconds.

  Returns:
    The path of the file. Size and checksum are verified if it was downloaded now.

  Raises:
    DataError: the download failed or its checksum is wrong. The message says how to get the file by hand.

  >>> import tempfile
  >>> from vrl_jax.system.storage import sha256
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   original = pathlib.Path(folder, 'labels.txt')
  ...   _ = original.write_bytes(b'0 1 2')
  ...   archive = Archive(original.as_uri(), 5, sha256('0 1 2'))
  ...   path = download(archive, pathlib.Path(folder, 'downloads'))
  ...   path.name, path.read_bytes()
  ('labels.txt', b'0 1 2')
  """
  path = pathlib.Path(folder) / archive.name
  if path.is_file():
    return path
  end = time.monotonic() + timeout
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    with atomic_path(path) as temporary:
      with (
        urllib.request.urlopen(archive.url, timeout=min(_SILENCE, timeout)) as response,
        open(temporary, 'wb') as file,
        tqdm.tqdm(desc=archive.name, total=archive.size, unit='B', unit_scale=True) as bar,
      ):
        while chunk := response.read1(_CHUNK):
          if time.monotonic() > end:
            raise TimeoutError(f'not finished after {timeout:g} s')
          bar.update(file.write(chunk))
      size, digest = temporary.stat().st_size, file_sha256(temporary)
      if (size, digest) != (archive.size, archive.sha256):
        raise ValueError(f'got {size} bytes with SHA-256 {digest}, not {archive.sha256}')
    return path
  except (OSError, http.client.HTTPException, ValueError) as error:
    raise DataError(
      f'{archive.url} could not be downloaded ({error}): download it on a machine with a network and save it as {path}'
    ) from error
