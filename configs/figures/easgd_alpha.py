"""EASGD's force α, between the least and the most (1/N) that make sense, beside S-SGD, Local SGD and VRL-SGD.

python launch.py --config configs/figures/easgd_alpha.py --workdir runs/easgd_alpha

LeNet on 4,000 embedded digits, a few minutes on 2 busy cores; what came out is in RESULTS.md.
"""

from configs.figures.small_digits import small_digits

BETAS = (0.1, 0.3, 0.5, 0.9, 1.0)  # Nα; 0.9 is the usual choice and the default


def get_config():
  config = small_digits("LeNet on 4,000 digits: EASGD's force")
  config.sweep = (
    {'name': 'S-SGD', 'algorithm': 's_sgd'},
    {'name': 'Local SGD', 'algorithm': 'local_sgd'},
    {'name': 'VRL-SGD', 'algorithm': 'vrl_sgd'},
    *({'name': f'EASGD, beta={beta:g}', 'algorithm': 'easgd', 'alpha': beta / config.workers} for beta in BETAS),
  )
  config.figure = ({'name': 'easgd_alpha', 'y': 'train_loss', 'x': 'epoch', 'log_y': True},)
  return config
