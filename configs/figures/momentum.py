"""Whether momentum helps, and what to do with its buffers when the workers communicate.

python launch.py --config configs/figures/momentum.py --workdir runs/momentum

With momentum 0.9 the learning rate is a tenth, so that a constant gradient moves the model as far as without. All start
from fresh weights: the plain SGD of the other figures would depend on the rate.

LeNet on 4,000 embedded digits, a few minutes on 2 busy cores; what came out is in RESULTS.md.
"""

from configs.figures.small_digits import small_digits

MOMENTUM = 0.9
ALGORITHMS = (('Local SGD', 'local_sgd'), ('VRL-SGD', 'vrl_sgd'))


def get_config():
  config = small_digits('LeNet on 4,000 digits: momentum')
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
