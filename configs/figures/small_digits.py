"""LeNet on 4,000 embedded digits, so that many runs are quick: for the figures of EASGD's force and of momentum."""

from configs import lenet_mnist


def small_digits(title, period=10, learning_rate=0.01):
  """The config of `configs/demo.py` for one run of 60 epochs (900 steps), classes divided among 8 workers."""
  config = lenet_mnist.get_config()
  config.dataset = 'mnist_5k'
  config.period = period
  config.learning_rate = learning_rate
  config.init_epochs = 2.0
  config.epochs = 60.0
  config.eval_every = 4.0
  config.title = title
  return config
