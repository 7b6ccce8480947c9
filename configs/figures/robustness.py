"""Where Local SGD and VRL-SGD converge, stall and diverge: two quadratics, their difference b × k × γ.

python launch.py --config configs/figures/robustness.py --workdir runs/robustness

100 runs of 400 steps in float64, from a distance of 1,000 to the minimum; about a minute (20 took 10 s). Dark cells
have converged, light ones have stalled, and crosses have diverged: their final distance is larger than the initial one.

Local SGD stalls for every k > 1, at a distance that grows with b: for b = 100 from 0.67 (k = 2, γ = 0.01) to 50
(k = 20, γ = 0.3). VRL-SGD converges for every b (below 1e-4 for γ = 0.03 and all k) unless kγ is too large: at k = 20 the
final distance is 0.98 (γ = 0.1) and 15 (γ = 0.3). At γ = 0.6, above the limit of 1/2 of the steeper quadratic, both
diverge for k > 1 (except Local SGD with b = 1 and k = 2, which ends at 710), and both converge with k = 1.
"""

import itertools

import vrl_jax


def get_config():
  config = vrl_jax.load_config('quadratic')
  config.title = 'Where Local SGD and VRL-SGD converge, stall and diverge'
  config.devices = 1
  config.x0 = 1000.0  # farther than any point at which a run stalls
  config.log_every_step = False
  config.eval_every = float(config.steps)
  config.checkpoint_minutes = 0.0
  config.may_diverge = True  # the map shows it
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
