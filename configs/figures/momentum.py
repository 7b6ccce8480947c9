"""Momentum, with its buffers kept, averaged or reset when the workers communicate.

python launch.py --config configs/figures/momentum.py --workdir runs/momentum

With momentum 0.9 the learning rate is divided by ten, so that a constant gradient moves the model as far as without
momentum. The initial weights are random, because those after plain SGD, as in the other figures, would depend on the
learning rate.

LeNet on 4,000 embedded digits, a few minutes on 2 busy cores. RESULTS.md has the results.
"""

import vrl_jax

MOMENTUM = 0.9
ALGORITHMS = (('Local SGD', 'local_sgd'), ('VRL-SGD', 'vrl_sgd'))


def get_config():
  config = vrl_jax.load_config('figures/small_digits')
  config.title = 'LeNet on 4,000 digits: momentum'
  config.init_epochs = 0.0
  with_momentum = {'momentum': MOMENTUM, 'learning_rate': round(config.learning_rate * (1 - MOMENTUM), 12)}
  config.sweep = (
    {'name': 'S-SGD', 'algorithm': 's_sgd'},
    *({'name': name, 'algorithm': algorithm} for name, algorithm in ALGORITHMS),
    {'name': 'S-SGD, momentum', 'algorithm': 's_sgd', **with_momentum},
    *(
      {'name': f'{name}, momentum, {buffers}', 'algorithm': algorithm, 'buffers': buffers, **with_momentum}
      for name, algorithm in ALGORITHMS
      for buffers in ('keep', 'mean', 'reset')
    ),
  )
  config.figure = ({'name': 'momentum', 'y': 'train_loss', 'x': 'epoch', 'panels': ('momentum',), 'log_y': True},)
  return config
