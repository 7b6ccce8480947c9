"""The paper's appendix: two quadratics, f1 = (x + 2b)² and f2 = 2(x − b)², in float64.

python launch.py --config configs/quadratic.py --workdir runs/quadratic

Two seconds. With b = 100 and k = 20 the final distance to the minimum is 5.58e-05; with --config.algorithm=local_sgd it
is 12.
"""

import vrl_jax


def get_config():
  config = vrl_jax.task_config('quadratic')
  config.workers = 2
  config.a = (1.0, 2.0)
  config.c = (-2.0, 1.0)
  config.b = 100.0
  config.x64 = True
  config.batch_size = 1
  config.period = 20
  config.steps = 400
  config.learning_rate = 0.01
  config.log_every_step = True
  return config
