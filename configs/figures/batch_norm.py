"""Batch normalisation with divided classes: LeNet-BN on 4,000 embedded digits, 8 workers, `batch_stats` in turn.

python launch.py --config configs/figures/batch_norm.py --workdir runs/batch_norm

6 runs from the same initial weights (train loss 0.226), a few minutes on 2 cores. Train loss after 40 epochs with
batch_stats=average, local and sync: S-SGD 0.212, 0.245 and 0.073, VRL-SGD (k = 10) 0.221, 0.255 and 0.074. Test
accuracy of VRL-SGD: 93.0, 92.6 and 95.1 %.

Only sync trains well. VRL-SGD follows S-SGD with each of the three, so the cause is not the local steps: a worker
normalises by the statistics of its two or three classes, which differ from those of the evaluation. sync costs a
collective in every step: VRL-SGD then communicates 660 times instead of 60 and sends 29.9 MB instead of 26.3 (local:
26.1). Pooling the workers' statistics (local) was worse than averaging them (average).
"""

import vrl_jax
from vrl_jax.engine.batch_stats import POLICIES


def get_config():
  config = vrl_jax.load_config('lenet_mnist')
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
