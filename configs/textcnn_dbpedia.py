"""TextCNN on DBPedia-14 with GloVe vectors, 8 workers, classes divided among them: the paper's second task.

python launch.py --config configs/textcnn_dbpedia.py --config.data_dir=DATA --workdir runs/textcnn
"""

from ml_collections import config_dict

from vrl_jax.config import default_config


def get_config():
  config = default_config()
  config.task = 'textcnn_dbpedia'
  config.data_dir = config_dict.placeholder(str)
  config.lowercase = True
  config.length = 50
  config.batch_size = 64
  config.learning_rate = 0.01
  config.weight_decay = 1e-4
  config.period = 50
  config.epochs = 5.0
  config.init_epochs = 2.0
  return config
