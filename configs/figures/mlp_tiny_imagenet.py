"""The paper's figures of this task: S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W from the same initial weights.

python launch.py --config configs/figures/mlp_tiny_imagenet.py --config.data_dir=DATA --workdir runs/mlp_tiny_imagenet
python launch.py --config configs/figures/mlp_tiny_imagenet.py:identical --config.data_dir=DATA   # or :half, :double (the period)

RESULTS.md has the results and the times.
"""

import vrl_jax
from vrl_jax.config.paper_sweep import paper_sweep


def get_config(variant=''):
  return paper_sweep(vrl_jax.load_config('mlp_tiny_imagenet'), variant)
