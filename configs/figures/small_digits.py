"""LeNet on 4,000 embedded digits, classes divided among 8 workers: the base of sweeps of many runs.

python launch.py --config configs/figures/small_digits.py --workdir runs/small_digits

One run of 60 epochs (900 steps) from weights after 2 epochs of plain SGD; configs/demo.py starts after 4. The figures on EASGD's α and on momentum are based on it.
"""

import vrl_jax


def get_config():
  config = vrl_jax.load_config('lenet_mnist')
  config.dataset = 'mnist_5k'
  config.period = 10
  config.learning_rate = 0.01
  config.init_epochs = 2.0
  config.epochs = 60.0
  config.eval_every = 4.0
  return config
