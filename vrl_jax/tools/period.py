"""The largest period with which each algorithm converges as fast as S-SGD, according to the theory.

    python -m vrl_jax.tools.period --steps 117187 --workers 8

`--smoothness L --noise SIGMA` also print the learning rate and the period of the corollary, with their constants.
"""

import sys
from collections.abc import Sequence

from vrl_jax.accounting import theory
from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.report import names
from vrl_jax.tools.arguments import ArgumentParser, positive_float, positive_int, reports_errors


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> main(['--steps', '10000', '--workers', '4', '--smoothness', '1', '--noise', '2'])  # doctest: +ELLIPSIS
  T = 10,000 steps, N = 4 workers
  ...
  0
  """
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.period',
    description='Prints the largest period with which each algorithm converges as fast as S-SGD in theory.',
  )
  parser.add_argument('--steps', type=positive_int, required=True, metavar='T', help='local steps of each worker')
  parser.add_argument('--workers', type=positive_int, required=True, metavar='N', help='number of workers')
  parser.add_argument('--smoothness', type=positive_float, metavar='L', help='Lipschitz constant of the gradient')
  parser.add_argument(
    '--noise', type=positive_float, metavar='SIGMA', help='standard deviation of a stochastic gradient'
  )
  args = parser.parse_args(argv)
  print(table(args.steps, args.workers))
  if args.smoothness and args.noise:
    print('\n' + corollary(args.steps, args.workers, args.smoothness, args.noise))
  return 0


def table(steps: int, workers: int) -> str:
  """A table of the period bounds, with constant 1, and the communications with these periods.

  >>> print(table(117_187, 8).splitlines()[4])
  VRL-SGD            15.1       7,813        15.1       7,813
  """
  lines = [f'T = {steps:,} steps, N = {workers} workers', f'{"":13}{"identical data":>22}  {"non-identical data":>22}']
  for name in ALGORITHMS:
    bounds = [theory.period_bound(name, steps, workers, identical_data=identical) for identical in (True, False)]
    if None not in bounds:
      lines.append(f'{names.algorithm(name):13}' + '  '.join(_cell(bound, steps) for bound in bounds))
  unknown = [names.algorithm(name) for name in ALGORITHMS if name not in theory.ALGORITHMS_WITH_BOUND]
  return '\n'.join([*lines, f'(largest k, and the communications with it; no bound is known for {", ".join(unknown)})'])


def _cell(bound, steps):
  return f'{bound:>10.1f}{-(-steps // theory.floor_period(bound)):>12,}'


def corollary(steps: int, workers: int, smoothness: float, noise: float) -> str:
  """The learning rate and the period of the corollary, with their constants.

  >>> print(corollary(steps=1_000_000, workers=4, smoothness=1.0, noise=1.0))
  VRL-SGD with linear speed-up: γ = (N/T)^½/σ = 0.002, k ≤ σT^½/(√72·L·N^1.5) = 14.73
  γ is within the theorem, which needs γ ≤ min(1/(2L), 1/(√72·kL)) = 0.008418
  """
  rate = theory.speedup_learning_rate(steps, workers, noise)
  period = theory.speedup_period(steps, workers, smoothness, noise)
  limit = theory.largest_learning_rate(smoothness, theory.floor_period(period))
  verdict = 'within' if rate <= limit else 'outside'
  return (
    f'VRL-SGD with linear speed-up: γ = (N/T)^½/σ = {rate:.4g}, k ≤ σT^½/(√72·L·N^1.5) = {period:.4g}\n'
    f'γ is {verdict} the theorem, which needs γ ≤ min(1/(2L), 1/(√72·kL)) = {limit:.4g}'
  )


if __name__ == '__main__':
  sys.exit(main())
