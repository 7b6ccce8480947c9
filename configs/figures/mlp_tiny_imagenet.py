"""The paper's figures of this task: S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W from the same start.

python launch.py --config configs/figures/mlp_tiny_imagenet.py --config.data_dir=DATA --workdir runs/mlp_tiny_imagenet
python launch.py --config configs/figures/mlp_tiny_imagenet.py:identical --config.data_dir=DATA   # or :half, :double (the period)

What came out, and how long it took, is in RESULTS.md.
"""

from configs import mlp_tiny_imagenet
from configs.figures.comparison import compare


def get_config(variant=''):
  return compare(mlp_tiny_imagenet.get_config(), variant)
