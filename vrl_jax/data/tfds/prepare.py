"""Prepares a data set with TFDS as array_record, from local files or from a download with a time limit."""

import contextlib
import importlib.util
import io
import os
import pathlib

from vrl_jax.data.sources import dbpedia_csv, files, mnist, tiny_imagenet_images
from vrl_jax.data.sources.archives import DBPEDIA, MNIST, TINY_IMAGENET, Archive, download
from vrl_jax.data.tfds import reader
from vrl_jax.errors import DataError, require_extra
from vrl_jax.system.storage import expand_home

# Our name: the name of the TFDS data set, its archives, and the sub-folder of `data_dir` with the original files.
_DATA_SETS: dict[str, tuple[str, tuple[Archive, ...], str]] = {
  'mnist': ('mnist', MNIST, mnist.FOLDER),
  'dbpedia': ('dbpedia14', (DBPEDIA,), dbpedia_csv.FOLDER),
  'tiny_imagenet': ('tiny_imagenet', (TINY_IMAGENET,), tiny_imagenet_images.FOLDER),
}
NAMES = tuple(_DATA_SETS)


def prepare(name: str, data_dir: str | os.PathLike | None = None, *, timeout: float = 1800) -> pathlib.Path:
  """Prepares a data set in TFDS' data directory, unless it is prepared already.

  Args:
    name: one of `NAMES`.
    data_dir: a folder to search for the original files; if they are found, nothing is downloaded.
    timeout: the time limit of each download in seconds.

  Returns:
    The folder of the prepared data set.

  Raises:
    DataError: the data set cannot be downloaded or prepared.
  """
  tfds_name, archives, folder = _DATA_SETS[name]
  if found := reader.find_prepared(tfds_name):
    return found
  require_extra('train', f'preparing {name}', 'tensorflow_datasets')
  if name == 'mnist' and importlib.util.find_spec('tensorflow') is None:
    raise DataError(
      "TFDS' builder of mnist needs TensorFlow: run pip install 'vrl-jax[tfds]', or set --data_dir to download the "
      'four original files into it, which needs no TensorFlow'
    )
  root = files.as_folder(data_dir)
  candidates = [*([root / folder, root] if root else []), reader.manual_dir()]
  originals = next((candidate for candidate in candidates if _has_originals(name, candidate)), None)
  if originals is None:
    originals = reader.manual_dir()
    for archive in archives:
      download(archive, originals, timeout=timeout)
  _run_builder(tfds_name, originals)
  if found := reader.find_prepared(tfds_name):
    return found
  raise DataError(
    f'TFDS prepared no version of {tfds_name} in {reader.tfds_dir()}: check that the folder can be written'
  )


def download_mnist(data_dir: str | os.PathLike, *, timeout: float = 1800) -> None:
  """Downloads the four original files of MNIST into `data_dir/mnist`; raises DataError as `download` does."""
  for archive in MNIST:
    download(archive, expand_home(data_dir, 'data_dir') / mnist.FOLDER, timeout=timeout)


def _has_originals(name: str, place: pathlib.Path) -> bool:
  if name == 'dbpedia' and files.find_files(place, dbpedia_csv.FOLDER, ['train.csv', 'test.csv']):
    return True
  if name == 'tiny_imagenet' and tiny_imagenet_images.find_images(place):
    return True
  return all((place / archive.name).is_file() for archive in _DATA_SETS[name][1])


def _run_builder(tfds_name: str, manual: pathlib.Path) -> None:
  try:
    import tensorflow_datasets as tfds

    import vrl_jax.data.tfds.builders  # noqa: F401

    builder = tfds.builder(tfds_name, data_dir=reader.tfds_dir(), file_format='array_record')
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints the result; the caller prints its own
      builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=manual, try_download_gcs=False),
        file_format='array_record',
      )
  except Exception as error:  # TFDS wraps every error in its own exceptions
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DataError):
      cause = cause.__cause__ or cause.__context__
    if cause is not None:
      raise cause from None
    raise DataError(
      f'TFDS could not prepare {tfds_name} from {manual} ({" ".join(str(error).split())[:500]}): remove the files '
      'that it names and run the command again'
    ) from error
