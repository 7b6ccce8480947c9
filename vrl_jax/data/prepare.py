"""Prepares a data set with TFDS: in bounded time, from local files where there are any, as array_record."""

import contextlib
import importlib.util
import io
import os
import pathlib

from vrl_jax.data import dbpedia_csv, files, mnist, prepared, tiny_imagenet_images
from vrl_jax.data.archives import DBPEDIA, MNIST, TINY_IMAGENET, fetch
from vrl_jax.errors import DataError

# Our name: TFDS' name, the archives, and the sub-folder of a user's own copy.
_DATA_SETS = {
  'mnist': ('mnist', MNIST, mnist.FOLDER),
  'dbpedia': ('dbpedia14', (DBPEDIA,), dbpedia_csv.FOLDER),
  'tiny_imagenet': ('tiny_imagenet', (TINY_IMAGENET,), tiny_imagenet_images.FOLDER),
}
NAMES = tuple(_DATA_SETS)


def prepare(name: str, data_dir: str | os.PathLike | None = None, *, timeout: float = 1800) -> pathlib.Path:
  """Prepares a data set in TFDS' folder, once.

  Args:
    name: one of `NAMES`.
    data_dir: a folder that may hold the original files; if it does, nothing is downloaded.
    timeout: seconds that each download may take.

  Returns:
    The folder of the prepared data set.

  Raises:
    DataError: it cannot be downloaded or prepared.
  """
  tfds_name, archives, folder = _DATA_SETS[name]
  if found := prepared.find_prepared(tfds_name):
    return found
  if name == 'mnist' and importlib.util.find_spec('tensorflow') is None:
    raise DataError(
      "TFDS' own builder of mnist needs TensorFlow to prepare it (not to read it): run pip install 'vrl-jax[tfds]', or "
      'give --data_dir to keep the four original files there, which needs no TensorFlow'
    )
  place = files.as_folder(data_dir)
  candidates = [place / folder, place] if place else []
  own = next((candidate for candidate in candidates if _has_originals(name, candidate)), None)
  manual = own or prepared.manual_dir()
  if own is None and not _has_originals(name, manual):
    for archive in archives:
      fetch(archive, manual, timeout=timeout)
  _run_builder(tfds_name, manual)
  return prepared.find_prepared(tfds_name)


def fetch_mnist(data_dir: str | os.PathLike, *, timeout: float = 1800) -> None:
  """Downloads the four original files of MNIST into `data_dir/mnist`; raises DataError as `fetch` does."""
  for archive in MNIST:
    fetch(archive, files.as_folder(data_dir) / mnist.FOLDER, timeout=timeout)


def _has_originals(name: str, place: pathlib.Path) -> bool:
  if name == 'dbpedia' and files.find_together(place, dbpedia_csv.FOLDER, ['train.csv', 'test.csv']):
    return True
  if name == 'tiny_imagenet' and tiny_imagenet_images.find_images(place):
    return True
  return all((place / archive.name).is_file() for archive in _DATA_SETS[name][1])


def _run_builder(tfds_name: str, manual: pathlib.Path) -> None:
  try:
    import tensorflow_datasets as tfds

    import vrl_jax.data.builders  # noqa: F401

    builder = tfds.builder(tfds_name, data_dir=prepared.tfds_dir(), file_format='array_record')
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints the outcome, which our caller tells in its own words
      builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=manual, try_download_gcs=False),
        file_format='array_record',
      )
  except Exception as error:  # TFDS wraps whatever happens inside in errors of its own kinds
    cause = error
    while cause is not None and not isinstance(cause, DataError):
      cause = cause.__cause__ or cause.__context__
    if cause is not None:
      raise cause from None
    raise DataError(
      f'TFDS could not prepare {tfds_name} from {manual} ({" ".join(str(error).split())[:500]}): remove the files that '
      'it complains about and run again'
    ) from error
