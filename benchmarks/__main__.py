"""Runs the benchmarks and prints their tables: python -m benchmarks [name …] [--quick]."""

import argparse
import importlib
import subprocess
import sys

from benchmarks.measure import machine
from vrl_jax.engine import devices

MODULES = {
  'round_time': 'benchmarks.round_time',
  'vs_pytorch': 'benchmarks.pytorch.comparison',
  'scaling': 'benchmarks.scaling',
  'choices': 'benchmarks.choices',
  'feeding': 'benchmarks.feeding',
  'checkpoint_cost': 'benchmarks.checkpoint_cost',
  'network': 'benchmarks.network.points',
}


def main() -> int:
  """Returns the exit status."""
  parser = argparse.ArgumentParser(prog='python -m benchmarks')
  parser.add_argument('names', nargs='*', metavar='name', help=f'some of {", ".join(MODULES)}; all by default')
  parser.add_argument('--quick', action='store_true', help='few repeats, as a test')
  args = parser.parse_args()
  if unknown := [name for name in args.names if name not in MODULES]:
    parser.error(f'no benchmark {unknown[0]!r}, must be one of {", ".join(MODULES)}')
  devices.prepare_devices(workers=8)
  print(machine())
  failed = False
  for name in args.names or MODULES:
    print(f'\n## {name}\n')
    try:
      tables = importlib.import_module(MODULES[name]).run(args.quick)
      for part in [tables] if isinstance(tables, str) else tables:
        print(f'{part}\n', flush=True)
    except subprocess.CalledProcessError as error:  # run the other benchmarks all the same
      failed = True
      print(f'failed: {" ".join(map(str, error.cmd))}\n{error.stderr}', flush=True)
  return int(failed)


if __name__ == '__main__':
  sys.exit(main())
