"""Measures some points and stores them: python -m benchmarks.network --tasks mlp --bandwidths 1e8."""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.network import islands, namespaces, points
from vrl_jax.tools.arguments import nonnegative_float, positive_float


def main(argv: Sequence[str] | None = None) -> int:
  """Measures some points and stores them; returns the exit status."""
  tasks = list(points.tasks())
  parser = argparse.ArgumentParser(prog='python -m benchmarks.network', description=__doc__.split(':')[0])
  parser.add_argument('--tasks', nargs='+', choices=tasks, default=tasks)
  parser.add_argument('--algorithms', nargs='+', choices=points.ALGORITHMS, default=list(points.ALGORITHMS))
  parser.add_argument(
    '--bandwidths',
    nargs='+',
    type=nonnegative_float,
    default=list(points.BANDWIDTHS),
    help='bits per second; 0 does not limit the links',
  )
  parser.add_argument(
    '--patience',
    type=positive_float,
    default=points.PATIENCE,
    metavar='S',
    help='runs that would communicate for longer are extrapolated from a few rounds',
  )
  parser.add_argument('--busy', action='store_true', help='mark the points as measured on a busy machine')
  parser.add_argument('--layouts', action='store_true', help='only count the bytes of different layouts of workers')
  parser.add_argument('--islands', action='store_true', help='only count the bytes of workers of several devices')
  args = parser.parse_args(argv)
  reason = namespaces.why_unavailable()
  if reason:
    print(f'skipped: {reason}')
    return 0
  try:
    if args.layouts:
      points.measure_layouts()
    elif args.islands:
      print(islands.table(islands.measure_all()))
    else:
      bandwidths = [bandwidth or None for bandwidth in args.bandwidths]
      points.measure_all(args.tasks, args.algorithms, bandwidths, patience=args.patience, busy=args.busy)
  except subprocess.CalledProcessError as error:
    print(f'error: {" ".join(map(str, error.cmd))}: {error.stderr.strip()}', file=sys.stderr)
    return 1
  return 0


if __name__ == '__main__':
  sys.exit(main())
