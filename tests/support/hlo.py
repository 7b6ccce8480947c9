"""An independent reader of the collectives in a compiled program, to check vrl_jax.accounting against."""

import re
from typing import NamedTuple

_KINDS = ('all-reduce', 'all-gather', 'all-to-all', 'collective-permute', 'reduce-scatter', 'collective-broadcast')
_INSTRUCTION = re.compile(r'^\s+(?:ROOT )?%?[\w.-]+ = (?P<type>.*?)\s(?P<opcode>[a-z][\w-]*)\(')
_CALLED = re.compile(r'(body|condition|calls|to_apply|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)')
_SHAPE = re.compile(r'(\w+)\[([\d,]*)\]')
_BYTES = {'pred': 1, 'bf16': 2, 'f16': 2, 's32': 4, 'u32': 4, 'f32': 4, 'f64': 8, 's64': 8}


class Collective(NamedTuple):
  """A collective instruction.

  Attributes:
    kind: its opcode.
    shapes: the shapes of its results, sorted.
    payload: their size in bytes.
    depth: the number of loops around it.
    after_loop: whether it comes after a loop at the same depth.
  """

  kind: str
  shapes: tuple[tuple[int, ...], ...]
  payload: int
  depth: int
  after_loop: bool


def collectives(text: str) -> list[Collective]:
  """All collectives that the entry computation reaches."""
  assert 'is_scheduled=true' in text  # so that the lines are in the order of execution
  entry, computations = _parse(text)
  found = []

  def visit(name, depth):
    loops = 0
    for line in computations[name]:
      match = _INSTRUCTION.match(line)
      if match is None:
        continue
      opcode = match['opcode']
      assert not opcode.endswith('-start'), line  # asynchronous collectives are not supported
      if opcode in _KINDS:
        shapes = [
          (kind, tuple(map(int, filter(None, dims.split(','))))) for kind, dims in _SHAPE.findall(match['type'])
        ]
        payload = sum(_BYTES[kind] * _size(shape) for kind, shape in shapes)
        found.append(Collective(opcode, tuple(sorted(s for _, s in shapes)), payload, depth, loops > 0))
      for attribute, names in _CALLED.findall(line):
        for called in re.findall(r'%([\w.-]+)', names):
          inside = visit(called, depth + (attribute == 'body'))
          loops += inside if opcode == 'call' else 0  # XLA may wrap a loop in a call
      loops += opcode == 'while'
    return loops

  visit(entry, 0)
  return found


def _parse(text):
  entry, computations, current = None, {}, None
  for line in text.splitlines():
    header = re.match(r'^(ENTRY )?%?([\w.-]+) \(.*\{$', line)
    if header:
      current = computations.setdefault(header[2], [])
      entry = header[2] if header[1] else entry
    elif line.startswith('}'):
      current = None
    elif current is not None:
      current.append(line)
  return entry, computations


def _size(shape):
  size = 1
  for n in shape:
    size *= n
  return size
