"""The paper's figures of this task: S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W from the same initial weights.

python launch.py --config configs/figures/lenet_mnist.py --config.data_dir=DATA --workdir runs/lenet_mnist
python launch.py --config configs/figures/lenet_mnist.py:identical --config.data_dir=DATA   # or :half, :double (the period)

`:published` and `:published_identical` run the three algorithms whose curves the authors published, from initial
weights with the train loss of theirs: plain SGD until 0.4136.

RESULTS.md has the results and the times.
"""

import vrl_jax
from vrl_jax.config.paper_sweep import paper_sweep

PUBLISHED_START = 0.4136
_PUBLISHED = {'published': 'non_identical', 'published_identical': 'identical'}


def get_config(variant=''):
  config = vrl_jax.load_config('lenet_mnist')
  if variant not in _PUBLISHED:
    return paper_sweep(config, variant, other_variants=_PUBLISHED)
  config.init_loss = PUBLISHED_START
  config.epochs = 30.0
  config = paper_sweep(config, _PUBLISHED[variant], only=('S-SGD', 'Local SGD', 'VRL-SGD'))
  config.title += f', from a train loss of {PUBLISHED_START}'
  return config
