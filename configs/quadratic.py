"""The paper's appendix: two quadratics, f1 = (x + 2b)² and f2 = 2(x − b)², in float64.

python launch.py --config configs/quadratic.py --workdir runs/quadratic

Two seconds. VRL-SGD with b = 100 and k = 20 ends 5.58e-05 from the minimum; --config.algorithm=local_sgd ends 12 from it.
"""

from vrl_jax.config import default_config


def get_config():
  config = default_config()
  config.task = 'quadratic'
  config.workers = 2
  config.a = (1.0, 2.0)
  config.c = (-2.0, 1.0)
  config.b = 100.0
  config.dimension = 1
  config.x0 = 1.0
  config.noise = 0.0
  config.x64 = True
  config.batch_size = 1
  config.period = 20
  config.steps = 400
  config.learning_rate = 0.01
  config.log_every_step = True
  return config
