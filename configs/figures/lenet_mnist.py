"""The paper's figures of this task: S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W from the same start.

python launch.py --config configs/figures/lenet_mnist.py --config.data_dir=DATA --workdir runs/lenet_mnist
python launch.py --config configs/figures/lenet_mnist.py:identical --config.data_dir=DATA   # or :half, :double (the period)
"""

from configs import lenet_mnist
from configs.figures.comparison import compare


def get_config(variant=''):
  return compare(lenet_mnist.get_config(), variant)
