"""Steps on large matrices tile by tile, so that the gradient stays in the cache.

The gradient of a dense layer's weights is a matrix product, and most optimizers then work elementwise. XLA computes the
full gradient, which goes to memory and back when it is larger than the cache. Here the product and the elementwise
operations after it are evaluated for a few rows at a time: `tile_updates` finds both in the jaxpr of a step and runs
them in a loop over tiles. docs/cpu.md says what this gains.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

_LARGE = 4 << 20
_TILE = 1 << 20
_ELEMENTWISE = frozenset(
  'abs add add_any convert_element_type copy div exp integer_pow log max min mul neg pow rsqrt select_n sign sqrt '
  'square sub tanh'.split()
)


def tile_updates(step: Callable[..., Any], tile_bytes: int | None = None) -> Callable[..., Any]:
  """`step`, `(state, *args) -> state`, with the large matrices of the state computed in tiles of rows, in place.

  Only results of a product followed by elementwise operations are tiled. Where the full gradient is needed, such as
  for its norm or for communication, the matrix is computed at once.

  Args:
    step: a function whose result has the structure of its first argument.
    tile_bytes: see :func:`number_of_tiles`.

  >>> step = lambda w, x: w - 0.1 * x.T @ jax.numpy.tanh(x @ w)
  >>> w, x = jax.numpy.ones((1024, 1024)), jax.numpy.ones((2, 1024))
  >>> bool(jax.numpy.allclose(tile_updates(step)(w, x), step(w, x)))
  True
  >>> 'f32[256,1024] = dot_general' in str(jax.make_jaxpr(tile_updates(step))(w, x))
  True
  """

  def tiled(state, *args):
    closed, shapes = jax.make_jaxpr(step, return_shape=True)(state, *args)
    jaxpr = _prune(closed.jaxpr, closed.jaxpr.outvars)
    loops = _tile_loops(jaxpr, len(jax.tree.leaves(state)), tile_bytes)
    if not loops:
      return step(state, *args)
    out = _evaluate(jaxpr, closed.consts, jax.tree.leaves((state, *args)), loops)
    return jax.tree.unflatten(jax.tree.structure(shapes), out)

  return tiled


def number_of_tiles(shape: tuple[int, ...], size: int, tile_bytes: int | None = None) -> int:
  """The number of tiles of a matrix: of 1 MB each for matrices of 4 MB or more whose rows can be divided so; else 1.

  `python -m benchmarks choices` on 2 cores, VRL-SGD, k = 20, time relative to tiles of 1 MB, for tiles of 512 kB, tiles
  of 2 MB and no tiles: a matrix of 4 MB 1.02, 0.99, 1.01; of 8 MB 1.09, 1.01, 1.15; of 16 MB 1.05, 1.00, 1.12.

  Args:
    shape: of the matrix.
    size: of the matrix, in bytes.
    tile_bytes: the maximal size of a tile, for matrices of any size; 0 for no tiles; None chooses.

  >>> number_of_tiles((2048, 1024), 8 << 20), number_of_tiles((1024, 200), 800 << 10)
  (8, 1)
  >>> number_of_tiles((2039, 1024), 8 << 20), number_of_tiles((1024, 200), 800 << 10, tile_bytes=400 << 10)
  (1, 2)
  """
  if tile_bytes == 0 or len(shape) < 2 or (tile_bytes is None and size < _LARGE):
    return 1
  minimum = -(-size // (tile_bytes or _TILE))
  return next((count for count in range(minimum, 4 * minimum) if shape[0] % count == 0), 1)


class _TileLoop(NamedTuple):
  """Results of a jaxpr, all of one shape, that are computed in tiles.

  Attributes:
    positions: indices of the results in the jaxpr's outputs and of their old values in its inputs.
    tiles: the number of tiles.
    inputs: the variables that are computed before the loop, at full size.
  """

  positions: list[int]
  tiles: int
  inputs: list[Any]


def _prune(jaxpr, results):
  """The jaxpr of these results, without the equations that none of them needs."""
  needed, equations = set(_variables(results)), []
  for equation in reversed(jaxpr.eqns):
    if equation.effects or not needed.isdisjoint(equation.outvars):
      equations.append(equation)
      needed.update(_variables(equation.invars))
  return jaxpr.replace(eqns=equations[::-1], outvars=list(results))


def _variables(atoms):
  return [atom for atom in atoms if not isinstance(atom, Literal)]


def _producers(jaxpr):
  return {var: equation for equation in jaxpr.eqns for var in equation.outvars}


def _tile_loops(jaxpr, num_states, tile_bytes):
  by_shape: dict[tuple[int, ...], list[int]] = {}
  for position, (old, new) in enumerate(zip(jaxpr.invars[:num_states], jaxpr.outvars)):
    if _variables([new]) and new is not old and old.aval.size:
      by_shape.setdefault(old.aval.shape, []).append(position)
  loops = []
  for shape, positions in by_shape.items():
    avals = [jaxpr.invars[position].aval for position in positions]
    tiles = number_of_tiles(shape, max(aval.size * aval.dtype.itemsize for aval in avals), tile_bytes)
    if tiles > 1 and (inputs := _loop_inputs(jaxpr, positions)) is not None:
      loops.append(_TileLoop(positions, tiles, inputs))
  return loops


def _loop_inputs(jaxpr, positions):
  """The full-size inputs of a tiled loop for these results, or None if they should not be tiled."""
  producers, old = _producers(jaxpr), {jaxpr.invars[position] for position in positions}
  inside, inputs, seen = {}, [], set()

  def visit(var, axis):
    if (var, axis) in seen:
      return
    seen.add((var, axis))
    equation = producers.get(var)
    axes = equation and _operand_axes(equation, axis)
    if axes is None:
      if var not in old or axis:
        inputs.append(var)
      return
    inside[id(equation)] = equation
    for operand, operand_axis in zip(equation.invars, axes):
      if isinstance(operand, Literal):
        continue
      if operand_axis is None or equation.primitive.name == 'dot_general':
        inputs.append(operand)
      else:
        visit(operand, operand_axis)

  for position in positions:
    visit(jaxpr.outvars[position], 0)
  read_outside = set(_variables(var for position, var in enumerate(jaxpr.outvars) if position not in positions))
  read_outside.update(*(_variables(equation.invars) for equation in jaxpr.eqns if id(equation) not in inside))
  produced_inside = {var for equation in inside.values() for var in equation.outvars}
  has_product = any(equation.primitive.name == 'dot_general' for equation in inside.values())
  possible = has_product and produced_inside.isdisjoint([*read_outside, *inputs]) and old.isdisjoint(inputs)
  return list(dict.fromkeys(inputs)) if possible else None  # in the same order in every process, unlike a set


def _operand_axes(equation, axis):
  """The axis along which to slice each operand for a slice of the result along `axis`; None if it is read in full.

  Returns None if a slice of the result cannot be computed from slices of the operands.
  """
  name, params = equation.primitive.name, equation.params
  shapes = [atom.aval.shape for atom in equation.invars]
  if name == 'transpose':
    return [params['permutation'][axis]]
  if name == 'dot_general':
    contracted, batch = params['dimension_numbers']
    free = [[d for d in range(len(s)) if d not in (*c, *b)] for s, c, b in zip(shapes, contracted, batch)]
    left = [*batch[0], *free[0], *(None for _ in free[1])]
    right = [*batch[1], *(None for _ in free[0]), *free[1]]
    return [left[axis], right[axis]]
  if name == 'broadcast_in_dim' and shapes == [()]:
    return [None]
  if name in _ELEMENTWISE and set(shapes) <= {(), equation.outvars[0].aval.shape}:
    return [axis if shape else None for shape in shapes]
  return None


def _evaluate(jaxpr, consts, args, loops):
  """The results of the jaxpr: everything outside the loops first, then each loop."""
  in_loops = {position for loop in loops for position in loop.positions}
  others = [position for position in range(len(jaxpr.outvars)) if position not in in_loops]
  inputs = [var for loop in loops for var in loop.inputs]
  outside = _prune(jaxpr, [*(jaxpr.outvars[position] for position in others), *inputs])
  values = jaxpr_as_fun(ClosedJaxpr(outside, consts))(*args)
  out, known = dict(zip(others, values)), dict(zip(inputs, values[len(others) :]))
  for loop in loops:
    out.update(zip(loop.positions, _run_loop(jaxpr, loop, known, [args[position] for position in loop.positions])))
  return [out[position] for position in range(len(out))]


def _run_loop(jaxpr, loop, known, start):
  producers, old = _producers(jaxpr), [jaxpr.invars[position] for position in loop.positions]
  rows = old[0].aval.shape[0] // loop.tiles

  def update_tile(i, state):
    full, tiles = known | dict(zip(old, state)), {}

    def tile_of(var, axis):
      if (var, axis) not in tiles:
        array = full.get(var)
        tile = compute(producers[var], axis) if array is None else lax.dynamic_slice_in_dim(array, i * rows, rows, axis)
        tiles[var, axis] = tile
      return tiles[var, axis]

    def compute(equation, axis):
      operands = [
        atom.val if isinstance(atom, Literal) else full[atom] if operand_axis is None else tile_of(atom, operand_axis)
        for atom, operand_axis in zip(equation.invars, _operand_axes(equation, axis))
      ]
      params = dict(equation.params)
      if equation.primitive.name == 'broadcast_in_dim':
        params['shape'] = tuple(rows if d == axis else size for d, size in enumerate(params['shape']))
      return equation.primitive.bind(*operands, **params)

    new = [tile_of(jaxpr.outvars[position], 0) for position in loop.positions]
    return [lax.dynamic_update_slice_in_dim(x, tile, i * rows, 0) for x, tile in zip(state, new)]

  return lax.fori_loop(0, loop.tiles, update_tile, start)
