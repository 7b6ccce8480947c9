"""VRL-SGD in one minute, offline: LeNet on 4,000 embedded digits, 8 workers.

python launch.py --config configs/demo.py --workdir runs/demo   (or: make demo)

One minute on 2 cores. The classes are divided among the workers, and all algorithms start from the same initial
weights. Final train loss: S-SGD 0.041 with 1,200 communications; with 120 communications VRL-SGD 0.051, Local SGD
0.157, EASGD 0.268.

The period (10), the learning rate (0.01) and the number of epochs are not the paper's; they were chosen to show the
effect on few data. With k = 20 VRL-SGD's loss was 1.6 times S-SGD's after 40 epochs (Local SGD's 2.5 times), and with
k = 30 and a learning rate of 0.02 it was higher than Local SGD's: kγ was too large.
"""

import vrl_jax
from vrl_jax.config.comparison import compare


def get_config():
  config = vrl_jax.load_config('lenet_mnist')
  config.dataset = 'mnist_5k'
  config.period = 10
  config.learning_rate = 0.01
  config.epochs = 80.0
  config.eval_every = 4.0
  return compare(config, only=('S-SGD', 'Local SGD', 'EASGD', 'VRL-SGD'))
