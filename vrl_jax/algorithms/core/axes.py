"""The names of the mapped axes of the workers."""

from collections.abc import Iterable

import jax
from jax import lax

DEVICE_AXIS = 'devices'
"""The name of the engine's axis of devices."""

AxisName = str | tuple[str, ...]


class AllWorkers(str):
  """The default `axis_name`: one mapped axis of this name, or both axes of the engine.

  >>> AllWorkers('workers') == 'workers'
  True
  """


class OnDevice(str):
  """The name of a `jax.vmap` axis whose workers are all on one device.

  An `axis_name` of this type promises that nothing is sent along the axis, which lets :func:`mean_over_workers` use a
  faster sum on CPU.

  >>> OnDevice('workers') == 'workers'
  True
  """


AXIS = AllWorkers('workers')
"""The default name of the mapped axis over which the workers communicate."""

AXES = (DEVICE_AXIS, OnDevice(AXIS))
"""The axes of the engine: the devices, and the workers of each."""


def worker_axes(axis_name: AxisName) -> tuple[str, ...]:
  """The axes that an `axis_name` stands for, where it is traced: in the engine, the default stands for both of its axes.

  >>> import jax
  >>> in_engine = lambda f: jax.vmap(jax.vmap(f, axis_name=AXIS), axis_name=DEVICE_AXIS)
  >>> workers = lambda x: lax.psum(1, worker_axes(AXIS))
  >>> in_engine(workers)(jax.numpy.zeros((2, 3))).tolist()[0], jax.vmap(workers, axis_name=AXIS)(jax.numpy.zeros(3)).tolist()
  ([6, 6, 6], [3, 3, 3])
  """
  if isinstance(axis_name, AllWorkers) and _is_mapped(DEVICE_AXIS):
    return AXES
  return (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)


def is_vmapped_over_explicit_axes(names: Iterable[str]) -> bool:
  """Whether axes are of `jax.vmap` on a mesh with Explicit axes, along which the arrays may be sharded.

  >>> is_vmapped_over_explicit_axes(['workers'])  # there is no mesh
  False
  """
  mesh = jax.sharding.get_abstract_mesh()
  return bool(mesh.explicit_axes) and not set(names) <= set(mesh.manual_axes)


def _is_mapped(name):
  try:
    lax.axis_size(name)
  except NameError:
    return False
  return True
