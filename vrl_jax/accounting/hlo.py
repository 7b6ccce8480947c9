"""Reads the collectives from the text of a compiled program."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from vrl_jax.accounting.device_groups import Groups, device_groups, replicas_and_partitions

COLLECTIVES = ('all-reduce', 'all-gather', 'all-to-all', 'collective-permute', 'collective-broadcast', 'reduce-scatter')
_BITS = {'pred': 8, 'bf16': 16, 'token': 0}
_BETWEEN_SLICES = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)",.*_xla_megascale_')
_COMPUTATION = re.compile(r'(ENTRY )?%(?P<name>[\w.-]+) \(.*\{$')
_INSTRUCTION = re.compile(r'\s+(ROOT )?%(?P<name>[\w.-]+) = (?P<type>\(.*?\)|\S+) (?P<op>[\w-]+)\((?P<rest>.*)')
_CALLED = re.compile(r'(?:body|to_apply|calls|true_computation|false_computation)=%([\w.-]+)')
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
_ARRAY = re.compile(r'([a-z]+\d*\w*)\[([\d,]*)\]')


class Collective(NamedTuple):
  """A collective operation of a compiled program.

  Attributes:
    op: its name, such as `all-reduce`, or `send` for a transfer to other TPU slices.
    bytes: the size of its operands on one device.
    loops: the number of loops around it.
    needs_loop: whether its operands depend on a loop in the same computation, so that it cannot start before that loop
      ends.
    during_loop: whether it is asynchronous, and in the schedule a loop runs between its start and its end.
    loops_beside: the number of loops in the same computation on which it does not depend and which do not depend on it,
      so that it can run at the same time as they do.
    groups: the groups of devices within which it communicates, by their places in the mesh; () if it leaves the program's
      devices, as a transfer between TPU slices does.

  >>> in_step, at_end = Collective('all-reduce', 400, 1, False), Collective('all-reduce', 80, 0, needs_loop=True)
  >>> 20 * in_step.bytes + at_end.bytes  # a round of 20 steps
  8080
  """

  op: str
  bytes: int
  loops: int
  needs_loop: bool
  during_loop: bool = False
  loops_beside: int = 0
  groups: Groups = ()

  def reduced(self, devices: int) -> float:
    """The size of the ring all-reduce that sends as much; all-to-all, all-gather and reduce-scatter are half of one.

    Args:
      devices: that take part, if `groups` do not say it.

    >>> Collective('all-to-all', 800, 0, False).reduced(8), Collective('all-gather', 100, 0, False).reduced(8)
    (400.0, 400.0)
    """
    devices = len(self.groups[0]) if self.groups else devices
    halves = {'all-to-all': 0.5, 'reduce-scatter': 0.5, 'all-gather': devices / 2}
    return self.bytes * halves.get(self.op, 1.0)

  @property
  def sent(self) -> float:
    """The bytes that a device sends if the devices of a group are a ring.

    >>> group = ((0, 1, 2, 3),)
    >>> [Collective(op, 400, 1, False, groups=group).sent for op in ('all-reduce', 'all-gather', 'reduce-scatter')]
    [600.0, 1200.0, 300.0]
    """
    size = len(self.groups[0]) if self.groups else 2
    others = {'all-reduce': 2 / size, 'all-gather': 1.0, 'reduce-scatter': 1 / size, 'all-to-all': 1 / size}
    return self.bytes * (size - 1) * others[self.op] if self.op in others else float(self.bytes)

  def is_inside(self, size: int) -> bool:
    """Whether it stays within islands of `size` consecutive devices each.

    >>> Collective('all-reduce', 400, 1, False, groups=((0, 1), (2, 3))).is_inside(2)
    True
    """
    islands = [{device // size for device in group} for group in self.groups]
    return bool(islands) and size > 1 and all(len(island) == 1 for island in islands)


class _Instruction(NamedTuple):
  type: str
  op: str
  operands: list[str]
  called: list[str]
  groups: Groups = ()
  slices: str = ''  # the name of a transfer between slices


_Computations = dict[str, dict[str, _Instruction]]


def collectives(text: str) -> list[Collective]:
  """The collectives of a program.

  Args:
    text: `jax.stages.Compiled.as_text()`.

  >>> collectives('''
  ... ENTRY %main (x: f32[3]) -> f32[3] {
  ...   %x = f32[3]{0} parameter(0)
  ...   ROOT %all-reduce = f32[3]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
  ... }
  ... ''')
  [Collective(op='all-reduce', bytes=12, loops=0, needs_loop=False, during_loop=False, loops_beside=0, groups=((0, 1),))]
  """
  computations, entry = _parse(text)
  return list(_walk(computations, entry, 0))


def _parse(text: str) -> tuple[_Computations, str]:
  computations: _Computations = {}
  entry, current = None, None
  sizes = replicas_and_partitions(text.lstrip().partition('\n')[0])
  for line in text.splitlines():
    header = _COMPUTATION.match(line)
    if header:
      current = computations.setdefault(header['name'], {})
      entry = header['name'] if header[1] else entry
    elif current is not None and (match := _INSTRUCTION.match(line)):
      operands, attributes = _split(match['rest'])
      branches = [name.strip().lstrip('%') for b in _BRANCHES.findall(attributes) for name in b.split(',')]
      called = _CALLED.findall(attributes) + branches
      op = match['op'].removesuffix('-start')
      groups = device_groups(op, attributes, *sizes) if op in COLLECTIVES else ()
      names = re.findall(r'%([\w.-]+)', operands)
      slices = _BETWEEN_SLICES.search(attributes) if op in ('send', 'recv') else None
      current[match['name']] = _Instruction(
        match['type'], match['op'], names, called, groups, slices[1] if slices else ''
      )
  if entry is None:
    raise ValueError('not a compiled HLO program: no ENTRY computation')
  for here in computations.values():
    sends = {one.slices: name for name, one in here.items() if one.op == 'send' and one.slices}
    for one in here.values():
      if one.op == 'recv' and one.slices in sends:  # the data centre's network computes it from what is sent
        one.operands.append(sends[one.slices])
  return computations, entry


def _split(rest: str) -> tuple[str, str]:
  """The operands and the attributes of `operands), attributes`."""
  depth = 1
  for place, char in enumerate(rest):
    depth += {'(': 1, ')': -1}.get(char, 0)
    if depth == 0:
      return rest[:place], rest[place + 1 :]
  return rest, ''


def _walk(
  computations: _Computations,
  name: str,
  loops: int,
  during_loop: bool = False,
  needs_loop: bool = False,
  beside: int = 0,
) -> Iterator[Collective]:
  here = computations.get(name, {})
  for place, (own_name, instruction) in enumerate(here.items()):
    during = during_loop or _is_during_loop(computations, here, place, own_name, instruction)
    op = instruction.op.removesuffix('-start')
    if op in COLLECTIVES or instruction.slices and op == 'send':
      size = sum(_bytes(here[operand].type) for operand in instruction.operands)
      needs, count = _loops(computations, here, own_name)
      yield Collective(op, size, loops, needs_loop or needs, during, beside + count, instruction.groups)
    else:
      inside = loops + (instruction.op == 'while')
      if op in ('async', 'call'):  # what the operands of its computation need, the parameters do not show
        needs, count = _loops(computations, here, own_name)
        for called in instruction.called:
          yield from _walk(computations, called, inside, during, needs_loop or needs, beside + count)
      else:
        for called in instruction.called:
          yield from _walk(computations, called, inside)


def _is_during_loop(computations, here, place, name, instruction):
  """Whether a loop is scheduled between the start of an asynchronous operation and its end."""
  if not instruction.op.endswith('-start'):
    return False
  names = {name}
  for later_name, later in list(here.items())[place + 1 :]:
    if names.intersection(later.operands):
      if later.op.endswith('-done'):
        return False
      if later.op.endswith('-update'):
        names.add(later_name)
    if _has_loop(computations, later):
      return True
  return False


def _loops(computations, here, name):
  """Whether an instruction depends on a loop of its computation, and the number of loops that are independent of it."""
  needed = _needed_by(here, name)
  loops = {other for other in here if _has_loop(computations, here[other])}
  return not needed.isdisjoint(loops), sum(name not in _needed_by(here, loop) for loop in loops - needed)


def _needed_by(here, name):
  """The instructions of a computation on which one of them depends."""
  seen, todo = set(), list(here[name].operands)
  while todo:
    other = todo.pop()
    if other not in seen and other in here:
      seen.add(other)
      todo += here[other].operands
  return seen


def _has_loop(computations, instruction):
  """Whether it is a loop or contains one; XLA may wrap a loop in a call."""
  inside = [i for name in instruction.called for i in computations.get(name, {}).values()]
  return instruction.op == 'while' or any(_has_loop(computations, one) for one in inside)


def _bytes(type_):
  total = 0
  for dtype, shape in _ARRAY.findall(type_):
    bits = _BITS[dtype] if dtype in _BITS else int(re.findall(r'\d+', dtype)[0])
    size = 1
    for length in filter(None, shape.split(',')):
      size *= int(length)
    total += size * bits // 8
  return total
