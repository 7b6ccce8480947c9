"""Where an algorithm converges, stalls and diverges: two quadratics, how different they are (b) × k × γ.

python launch.py --config configs/figures/robustness.py --workdir runs/robustness

100 runs of 400 steps in float64, from 1,000 away from the minimum; about a minute (20 took 10 s). A dark cell has
converged, a light one has stalled, a cross has diverged: it ended farther away than it began.

Local SGD stalls for every k > 1, the farther away the more the workers differ: for b = 100 at 0.67 (k = 2, γ = 0.01) to 50
(k = 20, γ = 0.3). VRL-SGD converges whatever b is (below 1e-4 for γ = 0.03 and all k), as long as kγ is not too large: at
k = 20 it is still 0.98 (γ = 0.1) and 15 (γ = 0.3) away. At γ = 0.6, more than the 1/2 that the steeper quadratic bears,
both diverge for k > 1 (Local SGD with b = 1 and k = 2 only just does not: 710), and with k = 1 both still converge.
"""

import itertools

from configs import quadratic


def get_config():
  config = quadratic.get_config()
  config.title = 'Where Local SGD and VRL-SGD converge, stall and diverge'
  config.devices = 1
  config.x0 = 1000.0  # far enough that no stall is farther
  config.log_every_step = False
  config.eval_every = float(config.steps)
  config.checkpoint_minutes = 0.0
  config.may_diverge = True  # which is what the map is about
  config.sweep = tuple(
    {
      'name': f'{algorithm}, b={b:g}, k={k}, rate={rate:g}',
      'algorithm': algorithm,
      'b': b,
      'period': k,
      'learning_rate': rate,
    }
    for algorithm, b, k, rate in itertools.product(
      ('local_sgd', 'vrl_sgd'), (1.0, 100.0), (1, 2, 5, 10, 20), (0.01, 0.03, 0.1, 0.3, 0.6)
    )
  )
  config.figure = (
    {'name': 'robustness', 'y': 'distance_to_optimum', 'x': 'period', 'against': 'learning_rate', 'panels': ('b',)},
  )
  return config
