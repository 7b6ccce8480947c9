"""A small network on islands of devices: its trajectory, and what its compiled rounds hold and send.

    python -m support.islands PROCESS NUM_PROCESSES PORT LOCAL_DEVICES FILE SIZE MODE ALGORITHM...

is one of several processes; process 0 writes the trajectories of the algorithms.
"""

import pickle
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import vrl_jax
from vrl_jax.cluster import join, processes
from vrl_jax.engine import devices
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Supply
from vrl_jax.engine.placement import first_copy

WORKERS, BATCH, PERIOD, WIDTH = 8, 8, 3, 8


def start():
  random = np.random.default_rng(0)
  normal = lambda *shape: random.normal(size=shape, scale=0.5)
  return {
    'in': normal(4, WIDTH),
    'bias': normal(WIDTH),
    'odd': normal(3),
    'out': normal(WIDTH, 3),
    'scale': np.float64(1.5),
  }


def loss(params, frozen, batch, rng):
  """A network of two layers with dropout."""
  hidden = jnp.tanh(batch['x'] @ params['in'] + params['bias'][None])
  kept = jax.random.bernoulli(rng, 0.8, hidden.shape)
  out = params['scale'] * jnp.where(kept, hidden, 0.0) @ params['out'] + params['odd'][None]
  return jnp.mean(jnp.square(out - batch['y']))


def batches(rounds):
  """[N, rounds, k, batch, ...]; the workers' targets differ."""
  random = np.random.default_rng(1)
  lead = (WORKERS, rounds, PERIOD, BATCH)
  return {
    'x': random.normal(size=(*lead, 4)),
    'y': random.normal(size=(*lead, 3)) + np.arange(8.0).reshape(8, 1, 1, 1, 1),
  }


def make_engine(name, number, size, mode='sharded', **options):
  """The engine of an algorithm on islands; 'vrl_sgd less' sends fragments late and quantised."""
  name, _, less = name.partition(' ')
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.03, momentum=0.5))
  if less:
    algorithm = vrl_jax.quantised(vrl_jax.overlapped(vrl_jax.streaming(algorithm, 2), 1), 8)
  placement = vrl_jax.place_workers(WORKERS, number, devices_per_worker=size, island=mode)
  return Engine(algorithm, loss, placement, Supply(None, lambda data, item: item), **options)


def items(engine, rounds):
  return engine.placement.split(batches(rounds), engine.placement.batch_sharding)


def trajectory(name, number, size, mode='sharded'):
  """The workers' models after two rounds, the metrics of the next, and the consensus model after it."""
  engine = make_engine(name, number, size, mode)
  engine.placement.connect_processes()
  state, _ = engine.run(engine.init(start()), items(engine, 2), 2)
  models = engine.placement.gather(state.params)  # read before the state is donated
  models = models and jax.tree.map(lambda x: np.array(x).reshape(WORKERS, *x.shape[2:]), models)
  state, metrics = engine.measure(state, items(engine, 1))
  metrics = {name: float(x[0]) for name, x in first_copy(metrics).items()}
  return models, metrics, first_copy(engine.consensus(state).params)


_RESULTS = re.compile(
  r' = (?P<type>\S+|\(.*?\)) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\('
)
_SHAPE = re.compile(r'(f32|f64|s32|u32|pred|bf16)\[([\d,]*)\]')
_SIZES = {'f64': 8, 'f32': 4, 's32': 4, 'u32': 4, 'bf16': 2, 'pred': 1}


def collectives(text, size):
  """[(kind, bytes, whether it leaves an island)] of the collectives of a compiled program on islands of `size` devices."""
  found = []
  for line in text.splitlines():
    if match := _RESULTS.search(line):
      sent = sum(
        _SIZES[t] * int(np.prod([int(n) for n in s.split(',') if n] or [1])) for t, s in _SHAPE.findall(match['type'])
      )
      leaves = any(len({device // size for device in group}) > 1 for group in _groups(line))
      found.append((match['kind'], sent, leaves))
  return found


def _groups(line):
  """The groups of devices that communicate with each other; the devices are numbered in the order of the mesh."""
  if pairs := re.search(r'source_target_pairs=\{(.*?)\}\}?,? ', line.replace('}}', '}},')):
    return [tuple(map(int, pair.split(','))) for pair in re.findall(r'\d+,\d+', pairs[0])]
  if listed := re.search(r'replica_groups=\{(\{.*?\})\}', line):
    return [tuple(map(int, group.split(','))) for group in re.findall(r'\{([\d,]+)\}', listed[1])]
  dims, shape, order = re.search(r'replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?', line).groups()
  numbers = lambda text: tuple(map(int, text.split(',')))
  ids = np.arange(np.prod(numbers(shape))).reshape(numbers(shape))
  return (ids.transpose(numbers(order)) if order else ids).reshape(numbers(dims)).tolist()


if __name__ == '__main__':
  process, number, port, local = map(int, sys.argv[1:5])
  join.join(join.Cluster(f'127.0.0.1:{port}', number, process, heartbeat_timeout_seconds=60))
  devices.prepare_devices(number * local)
  size, mode = int(sys.argv[6]), sys.argv[7]
  with jax.enable_x64(True):
    results = {name: trajectory(name, number * local, size, mode) for name in sys.argv[8:]}
  if processes.is_main():
    with open(sys.argv[5], 'wb') as file:
      pickle.dump(results, file)
  join.finish()
