"""An MLP on Inception V3 features of Tiny ImageNet, 8 workers, classes divided among them: the paper's third task.

python launch.py --config configs/mlp_tiny_imagenet.py --config.data_dir=DATA --workdir runs/mlp
"""

from ml_collections import config_dict

from vrl_jax.config import default_config


def get_config():
  config = default_config()
  config.task = 'mlp_tiny_imagenet'
  config.data_dir = config_dict.placeholder(str)
  config.batch_size = 32
  config.learning_rate = 0.025
  config.weight_decay = 1e-4
  config.period = 20
  config.epochs = 10.0
  config.init_epochs = 2.0
  return config
