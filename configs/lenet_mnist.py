"""LeNet on MNIST, 8 workers, classes divided among them: the paper's first task.

python launch.py --config configs/lenet_mnist.py --config.data_dir=DATA --workdir runs/lenet

All of MNIST, 10 epochs from the same start (2 epochs of plain SGD, train loss 0.0921); train loss, as measured by
configs/figures/lenet_mnist.py with seed 0: S-SGD 0.0592, VRL-SGD 0.0606 (VRL-SGD-W 0.0602), Local SGD 0.0748,
EASGD 0.0873. VRL-SGD communicates 117 times, S-SGD 2,340 times. On 2 cores a run takes 26 to 28 s.
"""

from ml_collections import config_dict

from vrl_jax.config import default_config


def get_config():
  config = default_config()
  config.task = 'lenet_mnist'
  config.dataset = 'mnist'  # or 'mnist_5k', which is embedded
  config.data_dir = config_dict.placeholder(str)
  config.batch_norm = False
  config.batch_size = 32
  config.learning_rate = 0.005
  config.weight_decay = 1e-4
  config.period = 20
  config.epochs = 10.0
  config.init_epochs = 2.0
  return config
