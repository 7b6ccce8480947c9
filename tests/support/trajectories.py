"""One of several processes that run algorithms on quadratics.

    python -m support.trajectories PROCESS NUM_PROCESSES PORT DEVICES FILE ALGORITHM...

Process 0 writes, for every algorithm, the workers' models after every round and the consensus model at the end, and the
batches of the workers.
"""

import sys

import numpy as np

import vrl_jax
from vrl_jax.cluster import join, processes
from vrl_jax.engine import devices

LENGTHS = (1, 3, 3, 2)
_PROGRAMS = ('run', 'measure', 'trace', 'run')


def trajectory(name, number_of_devices):
  """The models after every round [rounds, N, 7] and the consensus model [7].

  Args:
    name: of the algorithm; 'vrl_sgd less' is VRL-SGD in two fragments, with a delay of one step and 4 bits per number.
    number_of_devices: D.
  """
  import optax
  from support import numpy_reference, quadratics

  from vrl_jax.algorithms.core.axes import AXES
  from vrl_jax.engine.placement import first_copy

  name, _, less = name.partition(' ')
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.03, momentum=0.5), axis_name=AXES)
  if less:
    algorithm = vrl_jax.quantised(vrl_jax.overlapped(vrl_jax.streaming(algorithm, 2), 1), 4)
  more = {'overlap': processes.count() > 1}  # with several processes, as programs beside the local steps
  engine = quadratics.make_engine(algorithm, numpy_reference.heterogeneous(), devices=number_of_devices, **more)
  engine.placement.connect_processes()
  state, models = engine.init(quadratics.start(np.linspace(-1.0, 2.0, quadratics.DIMENSION))), []
  for program, length in zip(_PROGRAMS, LENGTHS):
    more = (1,) if program == 'run' else ()
    state, _ = getattr(engine, program)(state, quadratics.items(engine, length), *more)
    gathered = engine.placement.gather(state)
    models.append(None if gathered is None else quadratics.worker_models(gathered))
  last = quadratics.to_flat(first_copy(engine.consensus(state)), lead=0)
  return (np.stack(models), last) if processes.is_main() else None


EXAMPLES, BATCH = 43, 2  # 5 examples for each of 8 workers; 3 are dropped


def stream():
  """The index stream of 8 workers with disjoint shards."""
  from vrl_jax.data import partition
  from vrl_jax.data.stream import index_stream

  return index_stream(partition.by_class(np.arange(EXAMPLES) % 5, 8), BATCH)


def fed(number_of_devices):
  """The resident data of a device feed and the items of a host feed, both [N, ...]; every example is its index.

  In every process the examples of workers of other processes are replaced by -1.
  """
  from vrl_jax.engine.feed import Feed
  from vrl_jax.engine.placement import place_workers

  placement, shards = place_workers(8, number_of_devices), stream().partition.shards
  numbers = np.arange(EXAMPLES, dtype=np.int32)
  numbers[np.delete(shards, placement.local_workers, axis=0).ravel()] = -1
  resident, host = (Feed({'x': numbers}, stream(), placement, where=where) for where in ('device', 'host'))
  gathered = placement.gather((resident.supply.data['x'], host.items(step=1, length=2, rounds=2)['x']))
  return gathered and [np.asarray(gathered[0]).reshape(8, -1), np.asarray(gathered[1]).reshape(8, 2, 2, BATCH)]


if __name__ == '__main__':
  process, number, port, local = map(int, sys.argv[1:5])
  if number > 1:
    join.join(join.Cluster(f'127.0.0.1:{port}', number, process, heartbeat_timeout_seconds=60))
  devices.prepare_devices(number * local)
  import jax

  with jax.enable_x64(True):
    results = {name: trajectory(name, number * local) for name in sys.argv[6:]} | {'fed': fed(number * local)}
  if processes.is_main():
    np.savez(sys.argv[5], **{f'{name} {what}': x for name, both in results.items() for what, x in zip('ab', both)})
  join.finish()
