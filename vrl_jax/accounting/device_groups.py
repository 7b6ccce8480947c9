"""Which devices take part in a collective together, from the attributes of its HLO instruction.

The devices are numbered by their places in the program's device assignment, which are those of the flattened mesh.
"""

import re

import numpy as np

Groups = tuple[tuple[int, ...], ...]

_COUNT = re.compile(r'\b(replica_count|num_partitions)=(\d+)')
_LISTED = re.compile(r'replica_groups=\{((?:\{[\d, ]*\},? ?)*)\}')
_IOTA = re.compile(r'replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?')
_MESH = re.compile(r'replica_groups=mesh\[([^\]]*)\](?:, ?device_ids=\(([^)]*(?:\([^)]*\))?[^)]*)\))? ?\{([^}]*)\}')
_PAIRS = re.compile(r'source_target_pairs=\{((?:\{[\d, ]*\},? ?)*)\}')
_AXIS = re.compile(r"'?([\w.-]+)'?=(\d+)")
_ALONG = re.compile(r"'?([\w.-]+)'?(?::\((\d+)\)(\d+))?(?:,|$)")


def replicas_and_partitions(header: str) -> tuple[int, int]:
  """The numbers of replicas and partitions in the first line of a program.

  >>> replicas_and_partitions('HloModule jit_f, is_scheduled=true, num_partitions=8')
  (1, 8)
  """
  counts = dict(_COUNT.findall(header))
  return int(counts.get('replica_count', 1)), int(counts.get('num_partitions', 1))


def device_groups(op: str, attributes: str, replicas: int, partitions: int) -> Groups:
  """The groups of devices within which a collective communicates; the pairs, for a collective-permute.

  Args:
    op: such as `all-reduce`.
    attributes: of the instruction, what follows its operands.
    replicas: of the program.
    partitions: of the program.

  >>> device_groups('all-reduce', 'replica_groups={{0,1},{2,3}}, use_global_device_ids=true', 1, 4)
  ((0, 1), (2, 3))
  >>> device_groups('all-gather', 'replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true', 1, 8)
  ((0, 4), (1, 5), (2, 6), (3, 7))
  >>> device_groups('collective-permute', 'source_target_pairs={{0,1},{1,0}}', 2, 1)
  ((0, 1), (1, 0))
  """
  if pairs := _PAIRS.search(attributes):
    written = _listed(pairs[1])
  elif mesh := _MESH.search(attributes):
    written = _of_mesh(*mesh.groups())
  elif iota := _IOTA.search(attributes):
    shape, dims, order = iota.groups()
    written = _array(dims, order).reshape(_numbers(shape)).tolist()
  else:
    listed = _LISTED.search(attributes)
    written = _listed(listed[1]) if listed else []
  return _of_devices(op, attributes, written, replicas, partitions)


def _of_devices(op, attributes, written, replicas, partitions):
  """The devices that numbers stand for: replicas, partitions, or devices, of which device r·partitions + p is (r, p)."""
  if 'use_global_device_ids=true' in attributes or partitions == 1:
    groups = written or [range(replicas * partitions)]
  elif 'channel_id=' not in attributes:  # replicas, for each partition separately
    groups = [[r * partitions + p for r in group] for p in range(partitions) for group in written or [range(replicas)]]
  elif op in ('all-to-all', 'collective-permute', 'collective-broadcast'):  # partitions, for each replica separately
    groups = [[r * partitions + p for p in group] for r in range(replicas) for group in written or [range(partitions)]]
  else:  # replicas, with all of their partitions
    groups = [[r * partitions + p for r in group for p in range(partitions)] for group in written or [range(replicas)]]
  return tuple(map(tuple, groups))


def _numbers(text):
  return [int(number) for number in re.findall(r'\d+', text)]


def _listed(text):
  return [_numbers(group) for group in re.findall(r'\{([\d, ]*)\}', text)]


def _array(dims, order):
  """Consecutive numbers of this shape, transposed."""
  numbers = np.arange(np.prod(_numbers(dims))).reshape(_numbers(dims))
  return numbers.transpose(_numbers(order)) if order else numbers


def _of_mesh(axes, device_ids, along):
  """The groups along some axes of a mesh; `'x':(2)4` is the part of size 4 of axis x that follows a part of size 2."""
  sizes = {name: int(size) for name, size in _AXIS.findall(axes)}
  ids = np.arange(np.prod(list(sizes.values())))
  if iota := re.fullmatch(r'\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?', device_ids or ''):
    ids = _array(iota[2] or iota[1], iota[3])
  elif device_ids:
    ids = np.array(_numbers(device_ids))
  used = {name: (int(before or 1), int(size or sizes[name])) for name, before, size in _ALONG.findall(along)}
  shape: list[int] = []
  chosen: list[int] = []
  for name, size in sizes.items():
    before, part = used.get(name, (size, 1))
    if name in used:
      chosen.append(len(shape) + 1)
    shape += [before, part, size // (before * part)]
  ids = np.moveaxis(ids.reshape(shape), chosen, range(-len(chosen), 0))
  return ids.reshape(-1, int(np.prod([used[name][1] for name in used]))).tolist()
