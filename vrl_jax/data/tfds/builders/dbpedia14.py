"""DBPedia-14 for TFDS."""

import pathlib
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow_datasets as tfds

from vrl_jax.data.sources import dbpedia_csv, files
from vrl_jax.data.sources.archives import DBPEDIA
from vrl_jax.data.tfds.builders.downloads import manual_dir_or_none, url_info
from vrl_jax.errors import DataError


class Dbpedia14(tfds.core.GeneratorBasedBuilder):
  """Title, text and class of 560,000 + 70,000 Wikipedia articles.

  Reads `dbpedia_csv/train.csv` and `test.csv` (gzip or not) in the manual folder if they exist, else `dbpedia_csv.tgz`
  from the manual folder or the network.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   Dbpedia14(data_dir=folder).info.features['label'].names[:3]
  ['Company', 'EducationalInstitution', 'Artist']
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'Initial release.'}
  MANUAL_DOWNLOAD_INSTRUCTIONS = f'Optional: {DBPEDIA.url}, or dbpedia_csv/train.csv and test.csv from it.'
  url_infos = {DBPEDIA.url: url_info(DBPEDIA)}

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description='The DBPedia ontology classification data set: 14 classes, 40,000 + 5,000 articles each.',
      features=tfds.features.FeaturesDict(
        {
          'title': tfds.features.Text(),
          'text': tfds.features.Text(),
          'label': tfds.features.ClassLabel(names=dbpedia_csv.CLASS_NAMES),
        }
      ),
      homepage='https://www.dbpedia.org',
      license='CC BY-SA 3.0 and GFDL',
      citation='Zhang, Zhao, LeCun: Character-level Convolutional Networks for Text Classification. NIPS 2015.',
    )

  def _split_generators(self, dl_manager):
    found = files.find_files(manual_dir_or_none(dl_manager), dbpedia_csv.FOLDER, ['train.csv', 'test.csv'])
    if found:
      return {'train': _examples(dbpedia_csv.read_rows(found[0])), 'test': _examples(dbpedia_csv.read_rows(found[1]))}
    archive = pathlib.Path(dl_manager.download(DBPEDIA.url))
    return {split: _examples(_archived_rows(archive, f'dbpedia_csv/{split}.csv')) for split in ('train', 'test')}

  def _generate_examples(self):
    raise NotImplementedError  # abstract in TFDS; never called, because `_split_generators` returns the generators


def _examples(rows: Iterable[dbpedia_csv.Row]) -> Iterator[tuple[int, dict[str, Any]]]:
  for key, row in enumerate(rows):
    yield key, {'title': row.title, 'text': row.text, 'label': row.label}


def _archived_rows(archive: pathlib.Path, member: str) -> Iterator[dbpedia_csv.Row]:
  try:
    with tarfile.open(archive) as tar:
      stream = tar.extractfile(member)
      if stream is None:
        raise KeyError(f'{member} is not a file')
      yield from dbpedia_csv.parse_rows(stream, archive / member)
  except (tarfile.TarError, KeyError, EOFError, OSError) as error:
    raise DataError(f'{archive / member}: cannot be read ({error}): download {DBPEDIA.url} again') from error
