"""LeNet on MNIST, 8 workers, classes divided among them: the paper's first task.

python launch.py --config configs/lenet_mnist.py --config.data_dir=DATA --workdir runs/lenet

All of MNIST, 10 epochs from initial weights after 2 epochs of plain SGD (train loss 0.0921). Final train loss, measured
by configs/figures/lenet_mnist.py with seed 0: S-SGD 0.0592, VRL-SGD 0.0606 (VRL-SGD-W 0.0602), Local SGD 0.0748, EASGD
0.0873. VRL-SGD communicates 117 times, S-SGD 2,340 times. A run takes 26 to 28 s on 2 cores.
"""

import vrl_jax


def get_config():
  config = vrl_jax.task_config('lenet_mnist')
  config.batch_size = 32
  config.learning_rate = 0.005
  config.weight_decay = 1e-4
  config.period = 20
  config.epochs = 10.0
  config.init_epochs = 2.0
  return config
