"""LeNet on MNIST, 8 workers, classes divided among them: the paper's first task.

python launch.py --config configs/lenet_mnist.py --config.data_dir=DATA --workdir runs/lenet
"""

from ml_collections import config_dict

from vrl_jax.config import default_config


def get_config():
  config = default_config()
  config.task = 'lenet_mnist'
  config.dataset = 'mnist'  # or 'mnist_5k', which is embedded
  config.data_dir = config_dict.placeholder(str)
  config.batch_size = 32
  config.learning_rate = 0.005
  config.weight_decay = 1e-4
  config.period = 20
  config.epochs = 10.0
  config.init_epochs = 2.0
  return config
