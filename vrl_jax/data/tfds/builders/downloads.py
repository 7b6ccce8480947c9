"""The interface of the builders to TFDS' download manager."""

import pathlib

import tensorflow_datasets as tfds

from vrl_jax.data.sources.archives import Archive


def manual_dir_or_none(dl_manager: tfds.download.DownloadManager) -> pathlib.Path | None:
  """The manager's `manual_dir`, or None if it does not exist or is empty, where TFDS raises an error.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   manager = tfds.download.DownloadManager(download_dir=folder, manual_dir=pathlib.Path(folder, 'manual'))
  ...   print(manual_dir_or_none(manager))
  None
  """
  try:
    return pathlib.Path(dl_manager.manual_dir)
  except (AssertionError, ValueError):
    return None


def url_info(archive: Archive) -> tfds.core.download.checksums.UrlInfo:
  """Size and checksum of an archive, as TFDS verifies them; in code, so that no `checksums.tsv` has to be packaged.

  >>> url_info(Archive('https://example.org/train.csv', size=12, sha256='ab')).filename
  'train.csv'
  """
  return tfds.core.download.checksums.UrlInfo(size=archive.size, checksum=archive.sha256, filename=archive.name)
