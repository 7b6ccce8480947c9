"""The paper's figures of this task: S-SGD, Local SGD, EASGD, VRL-SGD and VRL-SGD-W from the same start.

python launch.py --config configs/figures/textcnn_dbpedia.py --config.data_dir=DATA --workdir runs/textcnn_dbpedia
python launch.py --config configs/figures/textcnn_dbpedia.py:identical --config.data_dir=DATA   # or :half, :double (the period)

What came out, and how long it took, is in RESULTS.md.
"""

from configs import textcnn_dbpedia
from configs.figures.comparison import compare


def get_config(variant=''):
  return compare(textcnn_dbpedia.get_config(), variant)
