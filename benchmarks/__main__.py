"""Runs the benchmarks and prints their tables: python -m benchmarks [name …] [--quick]."""

import argparse
import importlib
import subprocess
import sys

from benchmarks.measure import machine
from vrl_jax import devices

NAMES = ('round_time', 'vs_pytorch', 'scaling', 'choices', 'feeding', 'checkpoint_cost', 'network')

if __name__ == '__main__':
  parser = argparse.ArgumentParser(prog='python -m benchmarks')
  parser.add_argument('names', nargs='*', default=NAMES, help=f'which of {", ".join(NAMES)}')
  parser.add_argument('--quick', action='store_true', help='few repeats: to see that it works')
  args = parser.parse_args()
  devices.prepare(workers=8)
  print(machine())
  failed = False
  for name in args.names or NAMES:
    print(f'\n## {name}\n')
    try:
      tables = importlib.import_module(f'benchmarks.{name}').run(args.quick)
      for part in [tables] if isinstance(tables, str) else tables:
        print(f'{part}\n', flush=True)
    except subprocess.CalledProcessError as error:  # the others are worth having all the same
      failed = True
      print(f'failed: {" ".join(map(str, error.cmd))}\n{error.stderr}', flush=True)
  sys.exit(failed)
