"""How long a period may be: noisy quadratics, N = 4, T = 16,384, γ = (N/T)^½/σ, the error against k.

python launch.py --config configs/figures/period_limit.py --workdir /tmp/period_limit

A minute on two cores. VRL-SGD's ‖∇f‖² is 0.032 for every k, up to the bound T^½/N^{3/2} = 16 and beyond; Local SGD's
grows from its bound T^¼/N^¾ = 4 on, where it is 0.052, and then as k²: 8.6 for k = 64.
"""

from configs import quadratic
from vrl_jax import theory

WORKERS, STEPS, DIMENSION = 4, 2**14, 64


def get_config():
  config = quadratic.get_config()
  config.title = 'Squared gradient against the period: VRL-SGD and Local SGD'
  config.workers = WORKERS
  config.devices = 1
  config.steps = STEPS
  config.dimension = DIMENSION  # as many samples of the noise
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
