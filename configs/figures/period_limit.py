"""The error against the period k: noisy quadratics, N = 4, T = 16,384, γ = (N/T)^½/σ.

python launch.py --config configs/figures/period_limit.py --workdir /tmp/period_limit

One minute on 2 cores. VRL-SGD's ‖∇f‖² is 0.032 for every k, up to the bound T^½/N^{3/2} = 16 and beyond. Local SGD's is
0.052 at its bound T^¼/N^¾ = 4 and then grows as k²: 8.6 for k = 64.
"""

import vrl_jax
from vrl_jax.accounting import theory

WORKERS, STEPS, DIMENSION = 4, 2**14, 64


def get_config():
  config = vrl_jax.load_config('quadratic')
  config.title = 'Squared gradient against the period: VRL-SGD and Local SGD'
  config.workers = WORKERS
  config.devices = 1
  config.steps = STEPS
  config.dimension = DIMENSION  # independent samples of the noise
  config.noise = 1.0
  config.a = (0.5, 1.5) * (WORKERS // 2)
  config.c = (3.0, -1.0) * (WORKERS // 2)
  config.b = 2.0
  config.learning_rate = theory.speedup_learning_rate(STEPS, WORKERS, config.noise * DIMENSION**0.5)
  config.log_every_step = False
  config.eval_every = STEPS / 128
  config.sweep = tuple(
    {'name': f'{algorithm}, k={k}', 'algorithm': algorithm, 'period': k}
    for algorithm in ('local_sgd', 'vrl_sgd')
    for k in (1, 2, 4, 8, 16, 32, 64)
  )
  config.figure = ({'name': 'period_limit', 'y': 'squared_gradient', 'x': 'period', 'log_y': True},)
  return config
