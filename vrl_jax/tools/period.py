"""The period that each algorithm may use without converging slower, as theory has it.

    python -m vrl_jax.tools.period --steps 117187 --workers 8

With `--smoothness L --noise SIGMA` also the learning rate and the period of the corollary, with their constants.
"""

import argparse
import sys
from collections.abc import Sequence

from vrl_jax import theory
from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.report import names


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status."""
  parser = argparse.ArgumentParser(prog='python -m vrl_jax.tools.period', description=__doc__.split('\n')[0])
  parser.add_argument('--steps', type=_whole, required=True, metavar='T', help='the steps of each worker')
  parser.add_argument('--workers', type=_whole, required=True, metavar='N')
  parser.add_argument('--smoothness', type=_positive, metavar='L', help="the gradients' Lipschitz constant")
  parser.add_argument('--noise', type=_positive, metavar='SIGMA', help='the deviation of a gradient, as a vector')
  args = parser.parse_args(argv)
  print(table(args.steps, args.workers))
  if args.smoothness and args.noise:
    print('\n' + corollary(args.steps, args.workers, args.smoothness, args.noise))
  return 0


def table(steps: int, workers: int) -> str:
  """The bounds, with constant 1, and the communications that they need.

  >>> print(table(117_187, 8).splitlines()[4])
  VRL-SGD            15.1       7,813        15.1       7,813
  """
  lines = [f'T = {steps:,} steps, N = {workers} workers', f'{"":13}{"identical data":>22}  {"other data":>22}']
  for name in ALGORITHMS:
    bounds = [theory.period_bound(name, steps, workers, identical_data=identical) for identical in (True, False)]
    if None not in bounds:
      lines.append(f'{names.algorithm(name):13}' + '  '.join(_cell(bound, steps) for bound in bounds))
  unknown = [names.algorithm(name) for name in ALGORITHMS if name not in theory.BOUNDED]
  return '\n'.join([*lines, f'(k at most, and the communications with it; no bound is known for {", ".join(unknown)})'])


def _cell(bound, steps):
  return f'{bound:>10.1f}{-(-steps // theory.whole_period(bound)):>12,}'


def corollary(steps: int, workers: int, smoothness: float, noise: float) -> str:
  """The corollary's learning rate and period with their constants."""
  rate = theory.speedup_learning_rate(steps, workers, noise)
  period = theory.speedup_period(steps, workers, smoothness, noise)
  limit = theory.largest_learning_rate(smoothness, theory.whole_period(period))
  verdict = 'within' if rate <= limit else 'outside'
  return (
    f'VRL-SGD with linear speed-up: γ = (N/T)^½/σ = {rate:.4g}, k ≤ σT^½/(√72·L·N^1.5) = {period:.4g}\n'
    f'γ is {verdict} the theorem, which needs γ ≤ min(1/(2L), 1/(√72·kL)) = {limit:.4g}'
  )


def _whole(text):
  value = int(text)
  if value < 1:
    raise argparse.ArgumentTypeError(f'{text} must be at least 1')
  return value


def _positive(text):
  value = float(text)
  if not value > 0:
    raise argparse.ArgumentTypeError(f'{text} must be positive')
  return value


if __name__ == '__main__':
  sys.exit(main())
