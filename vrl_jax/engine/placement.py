"""N workers on D devices, and the layout of arrays over them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrl_jax.algorithms.core.axes import DEVICE_AXIS
from vrl_jax.cluster import processes
from vrl_jax.cpu.serial_dispatch import SerialDispatcher
from vrl_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Placement:
  """N workers on D devices; worker i is on device i // (N/D).

  With several processes, `devices` are those of all processes, in their order. Arrays over the workers are global:
  their shapes are those of a run in one process, and each process holds the shards of its own devices.

  Attributes:
    devices: the devices, in the order of the workers.
    workers_per_device: N/D.

  >>> placement = Placement(tuple(jax.devices()[:1]), workers_per_device=4)
  >>> placement.workers, placement.split(np.arange(8.0).reshape(4, 2)).shape, placement.replicate(np.zeros(2)).shape
  (4, (1, 4, 2), (1, 2))
  """

  devices: tuple[jax.Device, ...]
  workers_per_device: int
  _dispatcher: SerialDispatcher = dataclasses.field(default_factory=SerialDispatcher, compare=False, repr=False)

  @property
  def workers(self) -> int:
    """N."""
    return len(self.devices) * self.workers_per_device

  @property
  def platform(self) -> str:
    """The platform of the devices, such as 'cpu'."""
    return self.devices[0].platform

  @property
  def local_device_indices(self) -> range:
    """The indices in `devices` of this process's devices."""
    local = [index for index, device in enumerate(self.devices) if device.process_index == jax.process_index()]
    return range(local[0], local[-1] + 1)

  @property
  def is_local(self) -> bool:
    """Whether all devices belong to this process."""
    return len(self.local_device_indices) == len(self.devices)

  @property
  def local_workers(self) -> range:
    """The workers on this process's devices."""
    local, each = self.local_device_indices, self.workers_per_device
    return range(local.start * each, local.stop * each)

  @property
  def sharding(self) -> NamedSharding:
    """The sharding of an array with leading axis D, one slice per device; the results of pmap have the same."""
    return NamedSharding(Mesh(np.array(self.devices), (DEVICE_AXIS,)), PartitionSpec(DEVICE_AXIS))

  def split(self, tree: Any) -> Any:
    """Puts leaves [N, ...] on the devices as [D, N/D, ...]; slices of other processes' workers are not read."""
    local = self.local_workers
    return self.split_local(jax.tree.map(lambda x: np.asarray(x)[local.start : local.stop], tree))

  def split_local(self, tree: Any) -> Any:
    """Like `split`, of leaves that have only the `local_workers`."""
    shape = (len(self.local_device_indices), self.workers_per_device)
    return self.shard(jax.tree.map(lambda x: np.asarray(x).reshape(shape + x.shape[1:]), tree))

  def shard(self, tree: Any) -> Any:
    """Puts leaves [local devices, ...] on the devices as [D, ...], one slice per device."""
    if self.is_local:
      return jax.device_put(tree, self.sharding)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(self.sharding, np.asarray(x)), tree)

  def replicate(self, tree: Any) -> Any:
    """Gives every device a copy: leaves [...] become [D, ...]."""

    def copies(x: Any) -> jax.Array:
      x = np.asarray(x)
      shards = [jax.device_put(x[None], self.devices[index]) for index in self.local_device_indices]
      return jax.make_array_from_single_device_arrays((len(self.devices), *x.shape), self.sharding, shards)

    return jax.tree.map(copies, tree)

  def pmap(self, fun: Callable[..., Any], **kwargs: Any) -> 'Program':
    """Maps `fun` over the devices, axis 0 of every argument: the only pmap of the project."""
    return Program(self, jax.pmap(fun, axis_name=DEVICE_AXIS, devices=self.devices, **kwargs))

  def dispatch(self, program: Callable[..., Any], *args: Any) -> Any:
    """Calls a compiled program on these devices; on CPU after the previous one has finished, see `vrl_jax.cpu`."""
    return self._dispatcher(program, *args) if self.platform == 'cpu' else program(*args)

  def gather(self, tree: Any) -> Any:
    """Leaves [D, ...] that process 0 can read; None in the other processes.

    With several processes the leaves are sent one by one, and each is copied to every device for a moment.
    """
    if self.is_local:
      return tree
    leaves, structure = jax.tree.flatten(tree)
    gathered = []
    for x in leaves:
      everywhere = self._all_gather(x)  # all processes take part
      if processes.is_main():
        gathered.append(first_copy(everywhere))
    return jax.tree.unflatten(structure, gathered) if processes.is_main() else None

  def from_main(self, tree: Any) -> Any:
    """The NumPy leaves of process 0, bit by bit, in all processes; the others pass leaves of the same shapes and types."""
    if self.is_local:
      return tree
    processes.wait_for_all()

    def send(x: Any) -> np.ndarray:
      x = np.asarray(x)
      content = np.zeros((len(self.local_device_indices), x.nbytes), np.uint8)
      if processes.is_main():
        content[0] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
      return first_copy(self._sum(self.shard(content))).view(x.dtype).reshape(x.shape)

    return jax.tree.map(send, tree)

  def connect_processes(self) -> None:
    """Connects all processes now, because gloo's first collective times out after 30 s."""
    if not self.is_local:
      processes.wait_for_all()
      jax.block_until_ready(self._sum(self.replicate(np.int32(0))))

  @functools.cached_property  # one function for all calls, so that JAX compiles it once per shape
  def _all_gather(self) -> 'Program':
    return self.pmap(lambda x: lax.all_gather(x, DEVICE_AXIS))

  @functools.cached_property
  def _sum(self) -> 'Program':
    return self.pmap(lambda x: lax.psum(x, DEVICE_AXIS))

  def _to_global(self, x):
    """An array [D, ...] of an array that has only the shards of this process."""
    shards = [shard.data for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays((len(self.devices), *x.shape[1:]), self.sharding, shards)


class Program(NamedTuple):
  """A function mapped over the devices of a placement; arguments and results are global arrays.

  Attributes:
    placement: where it runs.
    mapped: the result of `jax.pmap`.

  >>> program = place_workers(workers=1).pmap(lambda x: 2 * x)
  >>> program(np.ones((1, 3), np.float32)).tolist()
  [[2.0, 2.0, 2.0]]
  >>> 'multiply' in program.lower(np.ones((1, 3), np.float32)).as_text()
  True
  """

  placement: Placement
  mapped: Any  # `jax.pmap` has no public type

  def __call__(self, *args: Any) -> Any:
    """Runs the function on all devices."""
    out = self.placement.dispatch(self.mapped, *args)
    # JAX accepts global arguments, but returns each process only the shards of its own devices.
    return out if self.placement.is_local else jax.tree.map(self.placement._to_global, out)

  def lower(self, *args: Any) -> jax.stages.Lowered:
    """Lowers the function for arguments of these shapes."""
    return self.mapped.lower(*args)


def place_workers(workers: int, devices: int | None = None) -> Placement:
  """Spreads the workers over the devices that JAX has.

  Args:
    workers: N.
    devices: the number of devices to use; None uses as many as divide the workers. With several processes, of all of
      them together; each contributes the same number.

  Returns:
    The placement: one worker per device if there are as many devices as workers.

  >>> place_workers(workers=6, devices=1).workers_per_device
  6
  """
  if jax.config.jax_disable_jit:  # type: ignore[attr-defined]  # JAX's config is typed without its options
    raise UserError('JAX_DISABLE_JIT=1, but the rounds are compiled programs: unset it')
  count, found = processes.count(), _find_devices()
  by_process = [[d for d in found if d.process_index == p] for p in range(count)] if count > 1 else [found]
  if workers % count:
    raise UserError(f'workers={workers} cannot be divided over {count} processes')
  available = min(map(len, by_process))
  if devices is None:
    devices = count * max(d for d in range(1, available + 1) if (workers // count) % d == 0)
  if devices > count * available:
    listed = f'{count} times {available}' if count > 1 else available
    raise UserError(f'devices={devices}, but JAX has {listed}: {by_process[0][0].platform}')
  if devices < 1 or workers % devices:
    raise UserError(f'workers={workers} cannot be divided over devices={devices}: choose a divisor of {workers}')
  if devices % count:
    raise UserError(f'devices={devices} cannot be divided over {count} processes: choose a multiple of {count}')
  used = tuple(d for local in by_process for d in local[: devices // count])
  return Placement(used, workers // devices)


def _find_devices():
  """All devices of JAX, whose backend starts here if it has not started yet."""
  try:
    return jax.devices()
  except (RuntimeError, AssertionError) as error:  # the latter for JAX_PLATFORMS=cuda without a GPU
    if isinstance(error, jax.errors.JaxRuntimeError):  # also raised if another process has died
      raise
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]  # as above
    reason = str(error) or 'there is no such device'
    raise UserError(f'JAX_PLATFORMS={platforms!r}: JAX cannot start ({reason}): unset it or choose another') from error


def first_copy(tree: Any) -> Any:
  """The slice of one device of leaves [D, ...], as NumPy arrays; indexing `x[0]` would gather over the devices.

  >>> first_copy(place_workers(workers=1).replicate({'x': np.array([1.0, 2.0], np.float32)}))
  {'x': array([1., 2.], dtype=float32)}
  """
  return jax.tree.map(lambda x: np.asarray(x.addressable_shards[0].data)[0], tree)
