"""Measures one task in a new process, for memory, start-up time and options that are fixed when JAX starts.

python -m benchmarks.fresh_process lenet --workers 8 --devices 2  # prints one line of JSON
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys


def measure(name: str, *, threads: int | None = None, **flags: object) -> dict[str, float]:
  """Runs this module in a new process; `threads` is the size of JAX's thread pool, None chooses."""
  command = [sys.executable, '-m', 'benchmarks.fresh_process', name]
  command += [f'--{key}={value}' for key, value in flags.items()]
  environment = os.environ | ({'PJRT_NPROC': str(threads)} if threads else {})
  return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def _peak_megabytes():
  """The peak of this program; getrusage would include the parent's memory before the exec."""
  status = pathlib.Path('/proc/self/status').read_text().splitlines()
  return int(next(line for line in status if line.startswith('VmHWM')).split()[1]) / 1024


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('name')
  parser.add_argument('--workers', type=int, default=8)
  parser.add_argument('--devices', type=int, help='virtual CPU devices; chosen by default')
  parser.add_argument('--shard', type=int, default=512)
  parser.add_argument('--rounds', type=int, default=1)
  parser.add_argument('--repeats', type=int, default=1)
  parser.add_argument('--cache', help='directory of the compilation cache')
  args = parser.parse_args()

  import jax

  from vrl_jax.engine import devices

  if args.cache:
    jax.config.update('jax_compilation_cache_dir', args.cache)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
  devices.prepare_devices(args.devices, workers=args.workers)

  from benchmarks.measure import interleaved
  from benchmarks.setups import Bench

  jax.block_until_ready(jax.numpy.zeros(1))
  before = _peak_megabytes()
  bench = Bench(args.name, 'vrl_sgd', workers=args.workers, shard=args.shard)
  seconds = min(interleaved({args.name: bench}, args.rounds, args.repeats)[args.name])
  report = {'examples_per_second': args.rounds * bench.examples_per_round / seconds}
  report |= {'rss_before': before, 'rss_peak': _peak_megabytes()}
  report |= {'state': sum(x.nbytes for x in jax.tree.leaves(bench.state)) / 2**20}
  print(json.dumps(report))


if __name__ == '__main__':
  main()
