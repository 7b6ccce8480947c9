"""Accelerators that are not attached: their compilers run on any machine."""

import importlib.util
import os
import re
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from vrl_jax.errors import UserError

_TPU = re.compile(r'(?P<slice>(?:v\d+\w*|tpu\d+\w*):\d+(?:x\d+)+)(?:\*(?P<slices>[1-9]\d*))?')
_GPU = re.compile(r'(?P<kind>[a-z]\w*):(?P<count>[1-9]\d*)')
_GPUS_PER_HOST = 8
_GIB = 1 << 30
_MEMORY = {
  'TPU v4': 32 * _GIB,
  'TPU v5 lite': 16 * _GIB,
  'TPU v5': 95 * _GIB,
  'TPU v6 lite': 32 * _GIB,
  'TPU7x': 96 * _GIB,  # a device is one of the two cores of a chip
}
# libtpu looks for a TPU's metadata server otherwise, and complains that there is none.
_WITHOUT_TPU = {
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-8',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_WORKER_ID': '0',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',  # by several processes, as none uses a TPU
}


class _Gpu(NamedTuple):
  """What XLA needs to know of a GPU."""

  name: str
  capability: int
  cores: int
  units_per_core: int
  shared_memory_per_core: int
  shared_memory_per_block: int
  l2_cache: int
  clock_ghz: float
  bandwidth: int
  memory: int


_GPUS = {
  'h100': _Gpu('NVIDIA H100 80GB HBM3', 9, 132, 128, 233472, 232448, 52428800, 1.98, 3352320000000, 80 * _GIB),
  'a100': _Gpu('NVIDIA A100-SXM4-80GB', 8, 108, 64, 167936, 166912, 41943040, 1.41, 2039000000000, 80 * _GIB),
}


class Topology(NamedTuple):
  """Devices to compile for.

  Attributes:
    name: as :func:`find_topology` takes it.
    devices: descriptions of the devices, which can be those of a mesh but cannot run anything.
    memory: bytes of each device; None if it is not known.
    compiler_options: for `jax.stages.Lowered.compile`.

  >>> Topology('h100:8', (), memory=80 << 30, compiler_options={}).memory
  85899345920
  """

  name: str
  devices: tuple[Any, ...]
  memory: int | None
  compiler_options: dict[str, Any]


def find_topology(name: str) -> Topology:
  """The devices that a name stands for.

  Args:
    name: a TPU slice by JAX's name (`v5e:2x4`, `v5p:2x2x2`), several slices connected by the data centre's network
      (`v5e:2x4*2`), or a number of GPUs, eight per host (`h100:8`, `a100:16`).

  Raises:
    UserError: there is no such topology, or its compiler is not installed.

  >>> find_topology('v5e')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: topology='v5e', must be a TPU slice such as v5e:2x4, slices such as v5e:2x4*2, or GPUs such \
as h100:8 (a100, h100)
  """
  gpu, tpu = _GPU.fullmatch(name), _TPU.fullmatch(name)
  if gpu and gpu['kind'] in _GPUS:
    return _gpus(name, _GPUS[gpu['kind']], int(gpu['count']))
  if tpu:
    return _tpus(name, tpu['slice'], int(tpu['slices'] or 1))
  known = ', '.join(sorted(_GPUS))
  raise UserError(
    f'topology={name!r}, must be a TPU slice such as v5e:2x4, slices such as v5e:2x4*2, or GPUs such as h100:8 ({known})'
  )


def install_command(name: str) -> str | None:
  """The command that installs the compiler of a topology; None if it is installed.

  >>> install_command('h100:8') in (None, f'pip install --no-deps {_plugins()}')
  True
  """
  if _TPU.fullmatch(name):
    return None if importlib.util.find_spec('libtpu') else f"pip install 'jax[tpu]=={jax.__version__}'"
  plugins = ('jax_cuda12_plugin', 'jax_cuda13_plugin')
  return None if any(map(importlib.util.find_spec, plugins)) else f'pip install --no-deps {_plugins()}'


def _plugins():
  return f'jax-cuda12-plugin=={jax.__version__} jax-cuda12-pjrt=={jax.__version__}'


def _require_compiler(name):
  if command := install_command(name):
    raise UserError(f'topology={name!r}: its compiler is not installed: {command}')


def _tpus(name, slice_name, slices):
  _require_compiler(name)
  for variable, value in _WITHOUT_TPU.items():
    os.environ.setdefault(variable, value)
  more = {'num_slices': slices} if slices > 1 else {}
  devices = _devices(name, platform='tpu', topology_name=slice_name, **more)
  return Topology(name, devices, _MEMORY.get(devices[0].device_kind), {})


def _gpus(name, spec, count):
  if count > _GPUS_PER_HOST and count % _GPUS_PER_HOST:
    raise UserError(f'topology={name!r}: more than {_GPUS_PER_HOST} GPUs must be whole hosts of {_GPUS_PER_HOST}')
  _require_compiler(name)
  hosts = -(-count // _GPUS_PER_HOST)
  layout = f'1x{hosts}x{count // hosts}'
  devices = _devices(name, platform='cuda', topology_name='', topology=layout, target_config=_target_config(spec))
  # Autotuning would run kernels.
  return Topology(name, devices, spec.memory, {'xla_gpu_autotune_level': 0})


def _devices(name, **kwargs):
  try:
    return tuple(topologies.get_topology_desc(**kwargs).devices)
  except (jax.errors.JaxRuntimeError, NotImplementedError, RuntimeError, ValueError) as error:
    advice = (
      '' if _platforms() == 'cpu' else '; start the process with JAX_PLATFORMS=cpu, as JAX looks for a GPU otherwise'
    )
    raise UserError(f'topology={name!r}: {str(error).splitlines()[0]}{advice}') from error


def _platforms():
  return jax.config.jax_platforms  # type: ignore[attr-defined]  # JAX's config is typed without its options


def _target_config(spec):
  """The text of XLA's GpuTargetConfigProto."""
  return f'''
    gpu_device_info {{
      threads_per_block_limit: 1024
      threads_per_warp: 32
      shared_memory_per_block: 49152
      shared_memory_per_core: {spec.shared_memory_per_core}
      threads_per_core_limit: 2048
      core_count: {spec.cores}
      fpus_per_core: {spec.units_per_core}
      block_dim_limit_x: 2147483647
      block_dim_limit_y: 65535
      block_dim_limit_z: 65535
      memory_bandwidth: {spec.bandwidth}
      l2_cache_size: {spec.l2_cache}
      clock_rate_ghz: {spec.clock_ghz}
      device_memory_size: {spec.memory}
      shared_memory_per_block_optin: {spec.shared_memory_per_block}
      cuda_compute_capability {{ major: {spec.capability} }}
      registers_per_core_limit: 65536
      registers_per_block_limit: 65536
    }}
    platform_name: "CUDA"
    dnn_version_info {{ major: 9 minor: 8 }}
    device_description_str: "{spec.name}"
  '''
