"""An MLP on Inception V3 features of Tiny ImageNet, 8 workers, classes divided among them: the paper's third task.

python launch.py --config configs/mlp_tiny_imagenet.py --config.data_dir=DATA --workdir runs/mlp

On features of 50 images per class (10,000), 20 epochs from the same start (2 epochs of plain SGD); train loss, as
measured by configs/figures/mlp_tiny_imagenet.py with seed 0: S-SGD 1.061, VRL-SGD 1.084 (VRL-SGD-W
1.077), Local SGD 1.290, EASGD 1.632. VRL-SGD communicates 39 times, S-SGD 780 times. On 2 cores a run takes 16 to 20 s.
"""

from ml_collections import config_dict

from vrl_jax.config import default_config


def get_config():
  config = default_config()
  config.task = 'mlp_tiny_imagenet'
  config.data_dir = config_dict.placeholder(str)
  config.batch_size = 32
  config.learning_rate = 0.025
  config.weight_decay = 1e-4
  config.period = 20
  config.epochs = 20.0
  config.init_epochs = 2.0
  return config
