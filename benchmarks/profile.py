"""Profiles a round on one core: the operations of the compiled program with their shares of the time.

python -m benchmarks.profile mlp --algorithm vrl_sgd
"""

import argparse
import collections
import glob
import gzip
import json
import os
import re
import tempfile

import jax

from benchmarks.measure import machine, table
from benchmarks.setups import SETTINGS, Bench
from vrl_jax.engine import devices

WORKERS = 4


def run(name: str, algorithm: str, rows: int = 12) -> str:
  """The `rows` longest operations of a device with four workers; the others are one row."""
  bench, rounds = Bench(name, algorithm, workers=WORKERS), 4
  bench(rounds)
  with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder):
      bench(rounds)
    with gzip.open(glob.glob(f'{folder}/**/*.trace.json.gz', recursive=True)[0]) as file:
      events = json.load(file)['traceEvents']
  items, limit = bench.feed.items(0, bench.period, rounds), bench.placement.replicate(jax.numpy.int32(rounds))
  operations = _operations(bench.engine.compile('run', bench.state, items, limit).as_text())
  spent = collections.Counter()
  for event in events:
    if event.get('ph') == 'X' and event['name'] in operations:
      spent[event['name']] += event['dur']
  total, steps = sum(spent.values()), rounds * bench.period * WORKERS
  lines = [['µs per step and worker', 'share', 'operation', 'result', 'source']]
  for key, duration in spent.most_common(rows):
    lines.append([f'{duration / steps:.0f}', f'{duration / total:.0%}', *operations[key]])
  rest = total - sum(duration for _, duration in spent.most_common(rows))
  lines.append([f'{rest / steps:.0f}', f'{rest / total:.0%}', f'{len(spent) - rows} others', '', ''])
  return table(lines)


def _operations(program):
  """{name: (kind, result, source)} of the operations that compute something themselves."""
  line = re.compile(r'\s*(?:ROOT )?%?([\w.\-]+) = (\w+\[[\d,]*\])\S* ([\w\-]+)\(')
  found = {}
  for text in program.splitlines():
    if (match := line.match(text)) and match[3] not in ('while', 'call', 'conditional'):
      source = re.search(r'op_name="([^"]*)"', text)
      tail = source[1].split('closed_call/')[-1] if source else ''
      found[match[1]] = (match[3], match[2], tail)
  return found


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('task', choices=SETTINGS)
  parser.add_argument('--algorithm', default='vrl_sgd')
  args = parser.parse_args()
  os.sched_setaffinity(
    0, {min(os.sched_getaffinity(0))}
  )  # of an operation on several threads the profiler counts only a part
  devices.prepare_devices(1, workers=WORKERS)
  print(f'{machine()}\n\n{run(args.task, args.algorithm)}')
