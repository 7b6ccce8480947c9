"""The placement of workers on devices or islands of devices: it puts arrays there, and maps programs over them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from vrl_jax.algorithms.core.axes import DEVICE_AXIS
from vrl_jax.cluster import processes
from vrl_jax.cpu.serial_dispatch import SerialDispatcher
from vrl_jax.engine.device_counts import device_counts, find_devices
from vrl_jax.engine.island import MODES, first_island
from vrl_jax.engine.layout import Layout, Sharding
from vrl_jax.engine.program import Program
from vrl_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Placement(Layout):
  """N workers on D devices; worker i is on device i // (N/D).

  If workers are larger than a device, D counts islands of M devices: "device" is then to be read as "island", and a mesh
  [D, M] takes the place of the D devices (see `vrl_jax.engine.island`).

  With several processes, `devices` are those of all processes, in their order. Arrays over the workers are global:
  their shapes are those of a run in one process, and each process holds the shards of its own devices.

  Attributes:
    devices: the D·M devices, in the order of the workers.
    workers_per_device: N/D.
    devices_per_island: M.
    island: one of `vrl_jax.engine.island.MODES`.

  >>> placement = Placement(tuple(jax.devices()[:1]), workers_per_device=4)
  >>> placement.workers, placement.split(np.arange(8.0).reshape(4, 2)).shape, placement.replicate(np.zeros(2)).shape
  (4, (1, 4, 2), (1, 2))
  """

  _dispatcher: SerialDispatcher = dataclasses.field(default_factory=SerialDispatcher, compare=False, repr=False)

  def split(self, tree: Any, sharding: Sharding | None = None) -> Any:
    """Puts leaves [N, ...] on the devices as [D, N/D, ...]; slices of other processes' workers are not read.

    Args:
      tree: the leaves.
      sharding: of a leaf, by its shape, for islands: `state_sharding` or `batch_sharding`.
    """
    local = self.local_workers
    return self.split_local(jax.tree.map(lambda x: np.asarray(x)[local.start : local.stop], tree), sharding)

  def split_local(self, tree: Any, sharding: Sharding | None = None) -> Any:
    """Like `split`, of leaves that have only the `local_workers`."""
    shape = (len(self.local_islands), self.workers_per_device)
    return self.shard(jax.tree.map(lambda x: np.asarray(x).reshape(shape + x.shape[1:]), tree), sharding)

  def shard(self, tree: Any, sharding: Sharding | None = None) -> Any:
    """Puts leaves [local devices, ...] on the devices as [D, ...], one slice per device."""
    if self.is_local and (sharding is None or self.devices_per_island == 1):
      return jax.device_put(tree, self.sharding)
    return jax.tree.map(lambda x: self._put(np.asarray(x), sharding(x.shape) if sharding else self.sharding), tree)

  def replicate(self, tree: Any) -> Any:
    """Gives every device a copy: leaves [...] become [D, ...]."""

    def copies(x: Any) -> jax.Array:
      x = np.asarray(x)
      shards = [jax.device_put(x[None], device) for device in self.local_devices]
      return jax.make_array_from_single_device_arrays((self.islands, *x.shape), self.sharding, shards)

    return jax.tree.map(copies, tree)

  def copy_model(self, tree: Any) -> Any:
    """Gives every device, or island, a copy of a model: leaves [...] become [D, ...]."""
    if self.devices_per_island == 1:
      return self.replicate(tree)
    rows = jax.tree.map(lambda x: np.broadcast_to(x, (len(self.local_islands), *np.shape(x))), tree)
    return self.shard(rows, functools.partial(self.state_sharding, lead=1))

  def _put(self, x, sharding):
    """An array [D, ...] of the slices [local devices, ...]."""
    first = self.local_islands.start

    def part(index):
      start, stop, _ = index[0].indices(self.islands)
      return x[(slice(start - first, stop - first), *index[1:])]

    return jax.make_array_from_callback((self.islands, *x.shape[1:]), sharding, part)

  def pmap(self, fun: Callable[..., Any], **kwargs: Any) -> Program:
    """Maps `fun` over the devices or islands, axis 0 of every argument: the only place where this project maps."""
    if self.devices_per_island == 1:
      return Program(self, jax.pmap(fun, axis_name=DEVICE_AXIS, devices=self.devices, **kwargs))
    if self.islands == 1:  # XLA fails to partition a program that is mapped by hand over an axis of one
      return Program(self, jax.jit(jax.vmap(fun, axis_name=DEVICE_AXIS), **kwargs))

    def on_island(*args):
      out = fun(*jax.tree.map(lambda x: lax.squeeze(x, [0]), args))
      return jax.tree.map(lambda x: lax.expand_dims(x, [0]), out)

    spec = PartitionSpec(DEVICE_AXIS)
    mapped = jax.shard_map(
      on_island, mesh=self.mesh, in_specs=spec, out_specs=spec, axis_names={DEVICE_AXIS}, check_vma=False
    )
    return Program(self, jax.jit(mapped, **kwargs))

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
      everywhere = self.dispatch(self._all_gather, x)  # all processes take part
      if processes.is_main():
        gathered.append(np.asarray(everywhere.addressable_data(0)))
    return jax.tree.unflatten(structure, gathered) if processes.is_main() else None

  def from_main(self, tree: Any) -> Any:
    """The NumPy leaves of process 0, bit by bit, in all processes; the others pass leaves of the same shapes and types."""
    if self.is_local:
      return tree
    processes.wait_for_all()
    flat = self._flat

    def send(x: Any) -> np.ndarray:
      x = np.asarray(x)
      content = np.zeros((len(flat.devices) // processes.count(), x.nbytes), np.uint8)
      if processes.is_main():
        content[0] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
      return first_copy(flat._sum(flat.shard(content))).view(x.dtype).reshape(x.shape)

    return jax.tree.map(send, tree)

  def connect_processes(self) -> None:
    """Connects all processes now, because gloo's first collective times out after 30 s."""
    if not self.is_local:
      processes.wait_for_all()
      jax.block_until_ready(self._flat._sum(self._flat.replicate(np.int32(0))))

  @functools.cached_property
  def _flat(self) -> 'Placement':
    """The same devices without islands."""
    if self.devices_per_island == 1:
      return self
    return Placement(self.devices, 1, _dispatcher=self._dispatcher)

  @functools.cached_property  # one function for all calls, so that JAX compiles it once per shape
  def _all_gather(self) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda x: x, out_shardings=NamedSharding(self.mesh, PartitionSpec()))

  @functools.cached_property
  def _sum(self) -> Program:
    return self.pmap(lambda x: lax.psum(x, DEVICE_AXIS))

  def to_global(self, x):
    """An array [D, ...] of an array that has only the shards of this process."""
    shards = [shard.data for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays((len(self.devices), *x.shape[1:]), self.sharding, shards)


def place_workers(
  workers: int,
  devices: int | None = None,
  *,
  devices_per_worker: int | None = None,
  island: str = 'replicated',
  batch_size: int | None = None,
) -> Placement:
  """Spreads the workers over the devices that JAX has.

  Args:
    workers: N.
    devices: the number of devices to use; None uses as many as divide the workers. With several processes, of all of
      them together; each contributes the same number.
    devices_per_worker: M; None chooses, see `vrl_jax.engine.device_counts`. If there are fewer than N·M devices, several
      workers share an island of M.
    island: with M > 1, 'replicated' gives every device of an island the parameters, Δ and the optimizer state, and
      'sharded' divides them over the island, each along the longest axis that M divides.
    batch_size: of a worker's mini-batch; the default M divides it.

  Returns:
    The placement: one worker per device if there are as many devices as workers.

  >>> place_workers(workers=6, devices=1).workers_per_device
  6
  """
  if jax.config.jax_disable_jit:  # type: ignore[attr-defined]  # JAX's config is typed without its options
    raise UserError('JAX_DISABLE_JIT=1, but the rounds are compiled programs: unset it')
  if island not in MODES:
    raise UserError(f'island={island!r}, must be one of {", ".join(MODES)}')
  count, found = processes.count(), find_devices()
  by_process = [[d for d in found if d.process_index == p] for p in range(count)] if count > 1 else [found]
  used, size = device_counts(
    workers,
    min(map(len, by_process)),
    processes=count,
    devices=devices,
    devices_per_worker=devices_per_worker,
    platform=found[0].platform,
    batch_size=batch_size,
  )
  if island == 'sharded' and size == 1 and devices_per_worker is None:
    raise UserError("island='sharded', but every worker has one device: set devices_per_worker")
  return Placement(tuple(d for own in by_process for d in own[: used // count]), workers * size // used, size, island)


def first_copy(tree: Any) -> Any:
  """The slice of one device or island of leaves [D, ...], as NumPy arrays; `x[0]` would gather over the devices.

  >>> first_copy(place_workers(workers=1).replicate({'x': np.array([1.0, 2.0], np.float32)}))
  {'x': array([1., 2.], dtype=float32)}
  """
  return jax.tree.map(first_island, tree)
