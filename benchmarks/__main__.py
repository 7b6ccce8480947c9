"""Runs the benchmarks and prints their tables: python -m benchmarks [name …] [--quick]."""

import argparse
import importlib

from benchmarks.measure import machine
from vrl_jax import devices

NAMES = ('round_time', 'vs_pytorch', 'scaling', 'feeding', 'checkpoint_cost')

if __name__ == '__main__':
  parser = argparse.ArgumentParser(prog='python -m benchmarks')
  parser.add_argument('names', nargs='*', default=NAMES, help=f'which of {", ".join(NAMES)}')
  parser.add_argument('--quick', action='store_true', help='few repeats: to see that it works')
  args = parser.parse_args()
  devices.prepare(workers=8)
  print(machine())
  for name in args.names or NAMES:
    print(f'\n## {name}\n')
    print(importlib.import_module(f'benchmarks.{name}').run(args.quick), flush=True)
