"""How long a period may be: noisy quadratics, N = 4, T = 65,536, γ = (N/T)^½/σ, the error against k.

python launch.py --config configs/figures/period_limit.py --workdir /tmp/period_limit

Two minutes on two cores. VRL-SGD's error is that of k = 1 up to k = T^½/N^{3/2} = 32 and beyond; Local SGD's has doubled
by k = T^¼/N^¾ = 5.7, and then grows as k².
"""

from configs import quadratic
from vrl_jax import theory

WORKERS, STEPS, DIMENSION = 4, 2**16, 64


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
  config.x0 = 0.0
  config.first_period = 1
  config.learning_rate = theory.speedup_learning_rate(STEPS, WORKERS, config.noise * DIMENSION**0.5)
  config.log_every_step = False
  config.eval_every = STEPS / 128
  config.sweep = tuple(
    {'name': f'{algorithm}, k={k}', 'algorithm': algorithm, 'period': k}
    for algorithm in ('local_sgd', 'vrl_sgd')
    for k in (1, 2, 4, 8, 16, 32, 64, 128)
  )
  config.figure = ({'name': 'period_limit', 'y': 'squared_gradient', 'x': 'period', 'log_y': True},)
  return config
