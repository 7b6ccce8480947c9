"""TextCNN on DBPedia-14 with frozen GloVe vectors."""

from typing import Any

from vrl_jax.data.dbpedia import load_dbpedia
from vrl_jax.models.textcnn import TextCNN
from vrl_jax.tasks._classification import classification_task
from vrl_jax.tasks.base import Task


def make_task(config: Any) -> Task:
  """TextCNN on the first `length` known words of title and text; `lowercase` them first or not."""
  splits, embedding = load_dbpedia(config.data_dir, lowercase=config.lowercase, length=config.length)
  train, test = ({'input': s['tokens'], 'label': s['label']} for s in (splits.train, splits.test))
  return classification_task(TextCNN(), train, test, splits.class_names, {'embedding': embedding}, dropout=True)
