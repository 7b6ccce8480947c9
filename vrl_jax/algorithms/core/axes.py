"""The names of the mapped axes of the workers."""

AXIS = 'workers'
"""The default name of the mapped axis over which the workers communicate."""

DEVICE_AXIS = 'devices'
"""The name of the engine's axis of devices."""

AxisName = str | tuple[str, ...]


class OnDevice(str):
  """The name of a `jax.vmap` axis whose workers are all on one device.

  An `axis_name` of this type promises that nothing is sent along the axis, which lets :func:`mean_over_workers` use a
  faster sum on CPU.

  >>> OnDevice('workers') == 'workers'
  True
  """


AXES = (DEVICE_AXIS, OnDevice(AXIS))
"""The `axis_name` of an algorithm that runs in the engine."""
