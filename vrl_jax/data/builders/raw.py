"""A builder's raw files: the folder of those got by hand, and what TFDS must know of an archive to verify it."""

import pathlib

import tensorflow_datasets as tfds

from vrl_jax.data.archives import Archive


def manual_dir(dl_manager: tfds.download.DownloadManager) -> pathlib.Path | None:
  """The folder for files got by hand, or None: unlike TFDS' property, an absent or empty folder is no error.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   manager = tfds.download.DownloadManager(download_dir=folder, manual_dir=pathlib.Path(folder, 'manual'))
  ...   print(manual_dir(manager))
  None
  """
  try:
    return pathlib.Path(dl_manager.manual_dir)
  except (AssertionError, ValueError):
    return None


def url_info(archive: Archive) -> tfds.core.download.checksums.UrlInfo:
  """TFDS' record of an archive (in code, so that no `checksums.tsv` has to be packaged).

  >>> url_info(Archive('https://example.org/train.csv', size=12, sha256='ab')).filename
  'train.csv'
  """
  return tfds.core.download.checksums.UrlInfo(size=archive.size, checksum=archive.sha256, filename=archive.name)
