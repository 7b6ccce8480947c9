"""Batch normalisation with divided classes: LeNet-BN on 4,000 embedded digits, 8 workers, the three policies.

python launch.py --config configs/figures/batch_norm.py --workdir runs/batch_norm

6 runs from the same weights (train loss 0.226), some minutes on 2 cores. Train loss after 40 epochs for the policies
average, local and sync: S-SGD 0.212, 0.245 and 0.073, VRL-SGD (k = 10) 0.221, 0.255 and 0.074. Test accuracy of VRL-SGD:
93.0, 92.6 and 95.1 %.

Only sync trains well. VRL-SGD follows S-SGD under each policy, so it is not the local steps that harm, but that a worker
normalises by the statistics of its own two or three classes, which are not those of the evaluation. The price of sync is a
collective in every step: VRL-SGD then communicates 660 times instead of 60 and sends 29.9 MB instead of 26.3 (local:
26.1). Pooling the workers' own statistics (local) did not help: it was worse than their mean (average).
"""

from configs import lenet_mnist
from vrl_jax.batch_stats import POLICIES


def get_config():
  config = lenet_mnist.get_config()
  config.title = 'Batch normalisation: what the workers do with the statistics'
  config.dataset = 'mnist_5k'
  config.batch_norm = True
  config.batch_stats = 'average'
  config.devices = 2
  config.period = 10
  config.learning_rate = 0.01
  config.epochs = 40.0
  config.eval_every = 4.0
  config.sweep = tuple(
    {'name': f'{algorithm}, {policy}', 'algorithm': algorithm, 'batch_stats': policy}
    for algorithm in ('s_sgd', 'vrl_sgd')
    for policy in POLICIES
  )
  config.figure = tuple(
    {'name': name, 'y': y, 'x': 'epoch', 'panels': ('batch_stats',), 'log_y': log}
    for name, y, log in (('batch_norm', 'train_loss', True), ('accuracy', 'test_accuracy', False))
  )
  return config
