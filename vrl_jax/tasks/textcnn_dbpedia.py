"""TextCNN on DBPedia-14 with frozen GloVe vectors."""

from typing import Any

from vrl_jax.config.checks import integer
from vrl_jax.config.table import Field, Role
from vrl_jax.data.sources.dbpedia import load_dbpedia
from vrl_jax.models.textcnn import TextCNN
from vrl_jax.tasks.classification import classification_task
from vrl_jax.tasks.task import Task

FIELDS = (
  Field('lowercase', True, bool, Role.PROBLEM, 'lower-case the texts before their words are looked up'),
  Field('length', 50, int, Role.PROBLEM, 'words of a text', integer(1)),
)


def make_task(config: Any) -> Task:
  """Makes the task from `config.length`, the known words kept of each text, and `config.lowercase`.

  >>> import os, pathlib, tempfile
  >>> from unittest import mock
  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('textcnn_dbpedia')
  >>> vector = ' '.join(['0.5'] * 50)
  >>> with tempfile.TemporaryDirectory() as config.data_dir, mock.patch.dict(os.environ, VRL_JAX_CACHE=config.data_dir):
  ...   _ = pathlib.Path(config.data_dir, 'glove.6B.50d.txt').write_text(f'of {vector}\\ncats {vector}\\n')
  ...   for split in ('train', 'test'):
  ...     _ = pathlib.Path(config.data_dir, f'{split}.csv').write_text('10,"Felis"," a genus of cats"\\n')
  ...   task = make_task(config)
  >>> task.train['input'][0, :4], task.frozen['constants']['embedding'].shape
  (array([1, 2, 0, 0], dtype=int32), (3, 50))
  """
  splits, embedding = load_dbpedia(config.data_dir, lowercase=config.lowercase, length=config.length)
  train, test = ({'input': s['tokens'], 'label': s['label']} for s in (splits.train, splits.test))
  model = TextCNN(conv_form=config.conv_form)
  return classification_task(model, train, test, splits.class_names, {'embedding': embedding}, dropout=True)
