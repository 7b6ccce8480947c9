"""The paper's figures of this task: S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W from the same start.

python launch.py --config configs/figures/lenet_mnist.py --config.data_dir=DATA --workdir runs/lenet_mnist
python launch.py --config configs/figures/lenet_mnist.py:identical --config.data_dir=DATA   # or :half, :double (the period)

`:published` and `:published_identical` are the three algorithms whose curves the authors published, from a start with
the train loss of theirs: plain SGD until 0.4136.

What came out, and how long it took, is in RESULTS.md.
"""

from configs import lenet_mnist
from configs.figures.comparison import compare

PUBLISHED_START = 0.4136
_PUBLISHED = {'published': 'non_identical', 'published_identical': 'identical'}


def get_config(variant=''):
  config = lenet_mnist.get_config()
  if variant not in _PUBLISHED:
    return compare(config, variant, also=_PUBLISHED)
  config.init_loss = PUBLISHED_START
  config.epochs = 30.0
  config = compare(config, _PUBLISHED[variant], only=('S-SGD', 'Local SGD', 'VRL-SGD'))
  config.title += f', from a train loss of {PUBLISHED_START}'
  return config
