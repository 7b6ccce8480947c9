"""What VRL-SGD does, in a few minutes on a laptop with no network: LeNet on 4,000 embedded digits, 8 workers.

python launch.py --config configs/demo.py --workdir runs/demo
"""

from configs import lenet_mnist
from configs.figures.comparison import compare


def get_config():
  config = lenet_mnist.get_config()
  config.dataset = 'mnist_5k'
  config.period = 10
  config.learning_rate = 0.01
  config.epochs = 80.0
  config.eval_every = 4.0
  return compare(config, only=('S-SGD', 'Local SGD', 'EASGD', 'VRL-SGD'))
