"""Where the workers are: N workers on D devices, and how arrays are laid out over them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrl_jax import hosts
from vrl_jax.errors import UserError

DEVICE_AXIS = 'devices'
_running = None  # a result of the last program that was launched on CPU devices


class Arrangement(NamedTuple):
  """N workers on D devices; worker i is on device i // (N/D).

  In a run of several processes the devices are those of all of them, in their order. Arrays over the workers are global
  then: they have the shapes of a run in one process, and each process holds its own devices' part and no other.

  Attributes:
    devices: the devices, in the order of the workers.
    workers_per_device: N/D.

  >>> spread = Arrangement(tuple(jax.devices()[:1]), workers_per_device=4)
  >>> spread.workers, spread.split(np.arange(8.0).reshape(4, 2)).shape, spread.replicate(np.zeros(2)).shape
  (4, (1, 4, 2), (1, 2))
  """

  devices: tuple[jax.Device, ...]
  workers_per_device: int

  @property
  def workers(self) -> int:
    """N."""
    return len(self.devices) * self.workers_per_device

  @property
  def own_devices(self) -> range:
    """The places in `devices` of this process's own."""
    own = [place for place, device in enumerate(self.devices) if device.process_index == jax.process_index()]
    return range(own[0], own[-1] + 1)

  @property
  def is_local(self) -> bool:
    """Whether all devices are this process's own."""
    return len(self.own_devices) == len(self.devices)

  @property
  def own_workers(self) -> range:
    """The workers on this process's devices."""
    own, each = self.own_devices, self.workers_per_device
    return range(own.start * each, own.stop * each)

  @property
  def sharding(self) -> NamedSharding:
    """The layout of an array with leading axis D: a slice a device, just as pmap lays out its own results."""
    return NamedSharding(Mesh(np.array(self.devices), (DEVICE_AXIS,)), PartitionSpec(DEVICE_AXIS))

  def split(self, tree: Any) -> Any:
    """Lays leaves [N, ...] out as [D, N/D, ...]; of other processes' workers nothing is read."""
    own = self.own_workers
    return self.split_own(jax.tree.map(lambda x: np.asarray(x)[own.start : own.stop], tree))

  def split_own(self, tree: Any) -> Any:
    """As `split`, of leaves that have only `own_workers`."""
    shape = (len(self.own_devices), self.workers_per_device)
    return self.place(jax.tree.map(lambda x: np.asarray(x).reshape(shape + x.shape[1:]), tree))

  def place(self, tree: Any) -> Any:
    """Lays leaves [own devices, ...] out as [D, ...], a slice a device."""
    if self.is_local:
      return jax.device_put(tree, self.sharding)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(self.sharding, np.asarray(x)), tree)

  def replicate(self, tree: Any) -> Any:
    """Gives every device a copy: leaves [...] become [D, ...]."""

    def copies(x):
      x = np.asarray(x)
      shards = [jax.device_put(x[None], self.devices[place]) for place in self.own_devices]
      return jax.make_array_from_single_device_arrays((len(self.devices), *x.shape), self.sharding, shards)

    return jax.tree.map(copies, tree)

  def pmap(self, fun: Callable, **kwargs) -> Callable:
    """Maps `fun` over the devices, axis 0 of every argument: the one pmap of the project.

    Arguments and results are global arrays, and `lower` of the result takes them too.
    """
    mapped = jax.pmap(fun, axis_name=DEVICE_AXIS, devices=self.devices, **kwargs)

    def launched(*args):
      out = in_turn(mapped, *args)
      # JAX takes global arguments as they are, but returns each process its own devices' part of the results.
      return out if self.is_local else jax.tree.map(self._rejoined, out)

    launched.lower = mapped.lower
    return launched

  def _rejoined(self, x):
    shards = [shard.data for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays((len(self.devices), *x.shape[1:]), self.sharding, shards)

  def gather(self, tree: Any) -> Any:
    """Leaves [D, ...] that process 0 can read; None in the others.

    Between processes they travel one after another; each is for a moment on every device as a whole.
    """
    if self.is_local:
      return tree
    everywhere = _collective(self, lax.all_gather)
    gathered = jax.tree.map(lambda x: first_copy(everywhere(x)) if hosts.is_main() else everywhere(x).shape, tree)
    return gathered if hosts.is_main() else None

  def from_main(self, tree: Any) -> Any:
    """Process 0's NumPy leaves, bit by bit, in all processes; the others' have the same shapes and types."""
    if self.is_local:
      return tree
    hosts.wait_for_all()
    add = _collective(self, lax.psum)

    def send(x):
      x = np.asarray(x)
      content = np.zeros((len(self.own_devices), x.nbytes), np.uint8)
      if hosts.is_main():
        content[0] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
      return first_copy(add(self.place(content))).view(x.dtype).reshape(x.shape)

    return jax.tree.map(send, tree)

  def meet(self) -> None:
    """Lets all processes connect to each other: JAX's collectives on CPUs give up if one is 30 s late the first time."""
    if not self.is_local:
      hosts.wait_for_all()
      jax.block_until_ready(_collective(self, lax.psum)(self.replicate(np.int32(0))))


def in_turn(program: Callable, *args: Any) -> Any:
  """Calls a program of several devices; on CPU, when the one before it has ended.

  There each device's part of a program holds a thread while it waits for the others. Parts of two programs could take
  all threads, and wait for parts that then have none: with one program at a time a thread a device is enough, and threads
  beyond that only take the cores from those that work (see `vrl_jax.devices`). What the host prepares for the next
  program still overlaps with this one.

  >>> spread = arrange(workers=1)
  >>> in_turn(jax.pmap(lambda x: 2 * x), spread.replicate(np.float32(3.0))).tolist()
  [6.0]
  """
  global _running
  before, _running = _running, None
  if before is not None and not before.is_deleted():
    before.block_until_ready()
  out = program(*args)
  on_cpu = [x for x in jax.tree.leaves(out) if next(iter(x.devices())).platform == 'cpu']
  _running = min(on_cpu, key=lambda x: x.nbytes, default=None)  # any will do, and it is kept in memory
  return out


@functools.lru_cache(maxsize=16)
def _collective(arrangement, operation):
  """The same function for the same arguments, so that JAX compiles it once for each shape."""
  return arrangement.pmap(lambda x: operation(x, DEVICE_AXIS))


def arrange(workers: int, devices: int | None = None) -> Arrangement:
  """Spreads the workers over the devices that JAX has.

  Args:
    workers: N.
    devices: how many devices to use; None takes as many as divide the workers. In a run of several processes each
      takes part with as many as the others.

  Returns:
    The arrangement: one worker a device where there are as many devices as workers.

  >>> arrange(workers=6, devices=1).workers_per_device
  6
  """
  processes = hosts.count()
  by_process = [[d for d in jax.devices() if d.process_index == p] for p in range(processes)]
  if processes == 1:
    by_process = [jax.devices()]
  if workers % processes:
    raise UserError(f'workers={workers} cannot be divided over {processes} processes')
  most = min(map(len, by_process))
  if devices is None:
    devices = processes * max(d for d in range(1, most + 1) if (workers // processes) % d == 0)
  if devices > processes * most:
    here = f'{processes} times {most}' if processes > 1 else most
    raise UserError(f'devices={devices}, but JAX has {here}: {by_process[0][0].platform}')
  if devices < 1 or workers % devices:
    raise UserError(f'workers={workers} cannot be divided over devices={devices}: choose a divisor of {workers}')
  if devices % processes:
    raise UserError(f'devices={devices} cannot be divided over {processes} processes: choose a multiple of {processes}')
  used = tuple(d for own in by_process for d in own[: devices // processes])
  return Arrangement(used, workers // devices)


def first_copy(tree: Any) -> Any:
  """One device's slice of leaves [D, ...], as NumPy arrays; indexing `x[0]` would gather over the devices.

  >>> first_copy(arrange(workers=1).replicate({'x': np.array([1.0, 2.0], np.float32)}))
  {'x': array([1., 2.], dtype=float32)}
  """
  return jax.tree.map(lambda x: np.asarray(x.addressable_shards[0].data)[0], tree)
