"""Linear speed-up: noisy quadratics, T = 16,384, γ = (N/T)^½/σ, the error against the number of workers.

python launch.py --config configs/figures/speedup.py --workdir /tmp/speedup

A minute on two cores. With the period that theory allows VRL-SGD (T^½/N^{3/2}: 45, 16, 5, 2), its ‖∇f‖² lies on
S-SGD's and falls as 1/N^½: 0.043, 0.032, 0.022, 0.016. Local SGD's with the same periods is 50 to 1.6 times as large.
"""

from configs import quadratic
from vrl_jax import theory

STEPS, DIMENSION = 2**14, 64


def get_config():
  config = quadratic.get_config()
  config.title = 'Squared gradient against the number of workers'
  config.devices = 1
  config.steps = STEPS
  config.dimension = DIMENSION  # as many samples of the noise
  config.noise = 1.0
  config.b = 2.0
  config.log_every_step = False
  config.eval_every = STEPS / 128
  config.sweep = tuple(
    {
      'name': f'{algorithm}, N={workers}',
      'algorithm': algorithm,
      'workers': workers,
      'period': theory.whole_period(theory.period_bound(algorithm='vrl_sgd', steps=STEPS, workers=workers)),
      'learning_rate': theory.speedup_learning_rate(STEPS, workers, config.noise * DIMENSION**0.5),
      'a': (0.5, 1.5) * (workers // 2),
      'c': (3.0, -1.0) * (workers // 2),
    }
    for algorithm in ('s_sgd', 'local_sgd', 'vrl_sgd')
    for workers in (2, 4, 8, 16)
  )
  config.figure = ({'name': 'speedup', 'y': 'squared_gradient', 'x': 'workers', 'log_y': True},)
  return config
