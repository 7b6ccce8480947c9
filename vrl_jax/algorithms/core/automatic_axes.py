"""Vectors of a worker that has several devices, divided over them before they are sent.

`jax.shard_map` maps the workers' axis of a mesh by hand and leaves other axes to JAX's partitioner. A flat vector of parts
of a model would have a copy on every device of such a worker, and each device would send all of it.
"""

import math
from collections.abc import Callable, Iterable

import jax
from jax import lax
from jax.sharding import AxisType, PartitionSpec


def automatic_axes(names: Iterable[str]) -> tuple[str, ...]:
  """The axes of the mesh over which the partitioner divides a worker; () if the workers are not mapped by hand.

  Args:
    names: the workers' axes.

  >>> automatic_axes(['workers'])  # there is no mesh
  ()
  """
  mesh = jax.sharding.get_abstract_mesh()
  if not set(names).intersection(mesh.manual_axes):
    return ()
  types = zip(mesh.axis_names, mesh.axis_types, strict=True)
  return tuple(name for name, kind in types if kind == AxisType.Auto and mesh.shape[name] > 1)


def divisor(names: Iterable[str]) -> int:
  """The number of devices of a worker over which the partitioner divides it.

  >>> divisor(['workers'])
  1
  """
  mesh = jax.sharding.get_abstract_mesh()
  return math.prod(mesh.shape[name] for name in automatic_axes(names))


def on_parts(
  fun: Callable[[jax.Array], jax.Array], names: Iterable[str], axis: int, out_axis: int
) -> Callable[[jax.Array], jax.Array]:
  """A collective over the workers that each device of a worker runs on its own part of an array.

  The partitioner would gather the operands of `all_to_all` and `all_gather`. And a `jax.shard_map` does not change how it
  divides other arrays, as a sharding constraint would.

  Args:
    fun: the collective.
    names: the workers' axes.
    axis: of the operand, along which it is divided; `divisor` must divide its length.
    out_axis: of the result, likewise.

  >>> on_parts(lambda x: 2 * x, ['workers'], 0, 0)(3)
  6
  """
  axes, mesh = automatic_axes(names), jax.sharding.get_abstract_mesh()
  # A collective over an axis of `jax.vmap` cannot be inside of a `jax.shard_map` that is mapped.
  if not axes or any(lax.axis_size(name) > 1 for name in set(names).difference(mesh.manual_axes)):
    return fun
  spec = lambda place: PartitionSpec(*[None] * place, axes)
  return jax.shard_map(fun, in_specs=spec(axis), out_specs=spec(out_axis), axis_names=set(axes), check_vma=False)
