"""What VRL-SGD does, in a minute on a laptop with no network: LeNet on 4,000 embedded digits, 8 workers.

python launch.py --config configs/demo.py --workdir runs/demo   (or: make demo)

One minute on 2 cores. The classes are divided among the workers, and every algorithm starts from the same weights. Final
train loss: S-SGD 0.041 with 1,200 communications; with 120 of them VRL-SGD 0.052, Local SGD 0.161, EASGD 0.267.

The period (10), the rate (0.01) and the number of epochs were chosen so that the effect is plain on so little data; they
are not the paper's. With k = 20 VRL-SGD was at 1.6 times S-SGD's loss after 40 epochs (Local SGD at 2.5), and with
k = 30 and a rate of 0.02 it was worse than Local SGD: kγ was too large.
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
