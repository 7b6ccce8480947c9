"""The paper's figures of this task: S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W from the same initial weights.

python launch.py --config configs/figures/textcnn_dbpedia.py --config.data_dir=DATA --workdir runs/textcnn_dbpedia
python launch.py --config configs/figures/textcnn_dbpedia.py:identical --config.data_dir=DATA   # or :half, :double (the period)

RESULTS.md has the results and the times.
"""

import vrl_jax
from vrl_jax.config.paper_sweep import paper_sweep


def get_config(variant=''):
  return paper_sweep(vrl_jax.load_config('textcnn_dbpedia'), variant)
