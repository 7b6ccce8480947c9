"""One of several processes that run algorithms on quadratics: python trajectories.py PROCESS OF PORT DEVICES FILE NAME…

Process 0 writes, for every algorithm, the workers' models after every round and the consensus model at the end; and what
the workers are fed with.
"""

import sys

import numpy as np

import vrl_jax
from vrl_jax import devices, hosts, joining

LENGTHS = (1, 3, 3, 2)
_PROGRAMS = ('run', 'measure', 'trace', 'run')


def trajectory(name, number_of_devices):
  """[rounds, N, 7] and [7]."""
  import numpy_reference
  import optax
  import quadratics

  from vrl_jax import rounds
  from vrl_jax.arrangement import first_copy

  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.03, momentum=0.5), axis_name=rounds.AXES)
  engine = quadratics.make_engine(algorithm, numpy_reference.heterogeneous(), devices=number_of_devices)
  engine.arrangement.meet()
  state, models = engine.init(quadratics.start(np.linspace(-1.0, 2.0, quadratics.DIMENSION))), []
  for program, length in zip(_PROGRAMS, LENGTHS):
    more = (1,) if program == 'run' else ()
    state, _ = getattr(engine, program)(state, quadratics.items(engine, length), *more)
    gathered = engine.arrangement.gather(state)
    models.append(None if gathered is None else quadratics.worker_models(gathered))
  last = quadratics.to_flat(first_copy(engine.consensus(state)), lead=0)
  return (np.stack(models), last) if hosts.is_main() else None


EXAMPLES, BATCH = 43, 2  # for 8 workers: 5 each, 3 are left out


def stream():
  """Each of 8 workers has examples of its own."""
  from vrl_jax.data import partition
  from vrl_jax.data.stream import index_stream

  return index_stream(partition.by_class(np.arange(EXAMPLES) % 5, 8), BATCH)


def fed(number_of_devices):
  """What lies on the devices of a device feed, and the items of a host feed, as [N, ...]; the examples are numbers.

  Every process sees the number -1 in place of the examples of other processes' workers.
  """
  from vrl_jax.arrangement import arrange
  from vrl_jax.data.feed import Feed

  arrangement, shards = arrange(8, number_of_devices), stream().partition.shards
  numbers = np.arange(EXAMPLES, dtype=np.int32)
  numbers[np.delete(shards, arrangement.own_workers, axis=0).ravel()] = -1
  resident, host = (Feed({'x': numbers}, stream(), arrangement, where=where) for where in ('device', 'host'))
  gathered = arrangement.gather((resident.supply.data['x'], host.items(step=1, length=2, rounds=2)['x']))
  return gathered and [np.asarray(gathered[0]).reshape(8, -1), np.asarray(gathered[1]).reshape(8, 2, 2, BATCH)]


if __name__ == '__main__':
  process, number, port, local = map(int, sys.argv[1:5])
  if number > 1:
    joining.join(joining.Cluster(f'127.0.0.1:{port}', number, process, heartbeat_timeout_seconds=60))
  devices.prepare(number * local)
  import jax

  with jax.enable_x64(True):
    results = {name: trajectory(name, number * local) for name in sys.argv[6:]} | {'fed': fed(number * local)}
  if hosts.is_main():
    np.savez(sys.argv[5], **{f'{name} {what}': x for name, both in results.items() for what, x in zip('ab', both)})
  joining.finish()
