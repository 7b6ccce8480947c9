"""Linear speed-up, the error against the number of workers: noisy quadratics, T = 16,384, γ = (N/T)^½/σ.

python launch.py --config configs/figures/speedup.py --workdir /tmp/speedup

One minute on 2 cores. With the period that the theory allows for VRL-SGD (T^½/N^{3/2}: 45, 16, 5, 2), its ‖∇f‖² equals
S-SGD's and decreases as 1/N^½: 0.043, 0.032, 0.022, 0.016. Local SGD's with the same periods is 50 to 1.6 times as
large.
"""

import vrl_jax
from vrl_jax.accounting import theory

STEPS, DIMENSION = 2**14, 64


def get_config():
  config = vrl_jax.load_config('quadratic')
  config.title = 'Squared gradient against the number of workers'
  config.devices = 1
  config.steps = STEPS
  config.dimension = DIMENSION  # independent samples of the noise
  config.noise = 1.0
  config.b = 2.0
  config.log_every_step = False
  config.eval_every = STEPS / 128
  config.sweep = tuple(
    {
      'name': f'{algorithm}, N={workers}',
      'algorithm': algorithm,
      'workers': workers,
      'period': theory.floor_period(theory.period_bound(algorithm='vrl_sgd', steps=STEPS, workers=workers)),
      'learning_rate': theory.speedup_learning_rate(STEPS, workers, config.noise * DIMENSION**0.5),
      'a': (0.5, 1.5) * (workers // 2),
      'c': (3.0, -1.0) * (workers // 2),
    }
    for algorithm in ('s_sgd', 'local_sgd', 'vrl_sgd')
    for workers in (2, 4, 8, 16)
  )
  config.figure = ({'name': 'speedup', 'y': 'squared_gradient', 'x': 'workers', 'log_y': True},)
  return config
