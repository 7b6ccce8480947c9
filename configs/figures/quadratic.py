"""The two figures of the paper's appendix: distance to the minimum, and variance of the update among the workers.

python launch.py --config configs/figures/quadratic.py --workdir runs/quadratic_figures

60 runs, one minute on 2 cores. At b = 100, k = 20 the final |x̂| is 5.1e-06 for S-SGD, 12 for Local SGD, 25 for EASGD,
5.6e-05 for VRL-SGD and 3.1e-06 for VRL-SGD-W, whose distance is the same for every b.
"""

import itertools

import vrl_jax

ALGORITHMS = (
  ('S-SGD', 's_sgd', None),
  ('Local SGD', 'local_sgd', None),
  ('EASGD', 'easgd', None),
  ('VRL-SGD', 'vrl_sgd', None),
  ('VRL-SGD-W', 'vrl_sgd', 1),
)


def get_config():
  config = vrl_jax.load_config('quadratic')
  config.title = 'Two quadratics: distance to the minimum and variance among workers'
  config.sweep = tuple(
    {'name': f'b={b:g}, k={k}, {name}', 'b': b, 'period': k, 'algorithm': algorithm, 'first_period': first}
    for b, k, (name, algorithm, first) in itertools.product((1.0, 10.0, 100.0), (2, 5, 10, 20), ALGORITHMS)
  )
  config.figure = tuple(
    {'name': y, 'y': y, 'x': 'step', 'panels': ('b', 'period'), 'log_y': True}
    for y in ('distance_to_optimum', 'variance_among_workers')
  )
  return config
