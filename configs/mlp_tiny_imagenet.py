"""An MLP on Inception V3 features of Tiny ImageNet, 8 workers, classes divided among them: the paper's third task.

python launch.py --config configs/mlp_tiny_imagenet.py --config.data_dir=DATA --workdir runs/mlp

Features of 50 images per class (10,000), 20 epochs from initial weights after 2 epochs of plain SGD. Final train loss,
measured by configs/figures/mlp_tiny_imagenet.py with seed 0: S-SGD 1.061, VRL-SGD 1.084 (VRL-SGD-W 1.077), Local SGD
1.290, EASGD 1.632. VRL-SGD communicates 39 times, S-SGD 780 times. A run takes 16 to 20 s on 2 cores.
"""

import vrl_jax


def get_config():
  config = vrl_jax.task_config('mlp_tiny_imagenet')
  config.batch_size = 32
  config.learning_rate = 0.025
  config.weight_decay = 1e-4
  config.period = 20
  config.epochs = 20.0
  config.init_epochs = 2.0
  return config
