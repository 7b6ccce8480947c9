"""EASGD with several values of α up to its maximum 1/N, beside S-SGD, Local SGD and VRL-SGD.

python launch.py --config configs/figures/easgd_alpha.py --workdir runs/easgd_alpha

LeNet on 4,000 embedded digits, a few minutes on 2 busy cores. RESULTS.md has the results.
"""

import vrl_jax

BETAS = (0.1, 0.3, 0.5, 0.9, 1.0)  # Nα; 0.9 is the usual choice and the default


def get_config():
  config = vrl_jax.load_config('figures/small_digits')
  config.title = "LeNet on 4,000 digits: EASGD's force"
  config.sweep = (
    {'name': 'S-SGD', 'algorithm': 's_sgd'},
    {'name': 'Local SGD', 'algorithm': 'local_sgd'},
    {'name': 'VRL-SGD', 'algorithm': 'vrl_sgd'},
    *({'name': f'EASGD, beta={beta:g}', 'algorithm': 'easgd', 'alpha': beta / config.workers} for beta in BETAS),
  )
  config.figure = ({'name': 'easgd_alpha', 'y': 'train_loss', 'x': 'epoch', 'log_y': True},)
  return config
