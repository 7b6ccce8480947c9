"""VRL-SGD in one minute, offline: LeNet on 4,000 embedded digits, 8 workers.

python launch.py --config configs/demo.py --workdir runs/demo   (or: make demo)

One minute on 2 cores. The classes are divided among the workers, and all algorithms start from the same initial
weights. Final train loss: S-SGD 0.046 with 900 communications; with 90 communications VRL-SGD 0.051, VRL-SGD-W 0.049
(91 communications), Local SGD 0.118, EASGD 0.174.

VRL-SGD-W begins with a period of one step, so its corrections are right from the second round on. VRL-SGD's first
period has no corrections, and those that it leaves behind are means over models that had drifted apart. The farther
from a minimum the run starts, the more that costs: from weights after 2 or 3 epochs of plain SGD instead of 4, its
loss rises for some epochs before it falls below Local SGD's.

The period (10), the learning rate (0.01), the number of epochs and the 4 epochs before them are not the paper's; they
were chosen to show the effect on few data. kγ cannot be much larger: with k = 30 and a learning rate of 0.02, and 2
epochs of plain SGD, VRL-SGD ended above Local SGD.
"""

import vrl_jax
from vrl_jax.config.paper_sweep import paper_sweep


def get_config():
  config = vrl_jax.load_config('lenet_mnist')
  config.dataset = 'mnist_5k'
  config.period = 10
  config.learning_rate = 0.01
  config.epochs = 60.0
  config.init_epochs = 4.0
  config.eval_every = 4.0
  return paper_sweep(config)
