"""Steps on large matrices tile by tile, so that their gradient never leaves the cache."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

_LARGE = 4 << 20
_TILE = 1 << 20
_ELEMENTWISE = frozenset(
  'abs add add_any convert_element_type copy div exp integer_pow log max min mul neg pow rsqrt select_n sign sqrt square '
  'sub tanh'.split()
)


def in_tiles(step: Callable[..., Any], tile_bytes: int | None = None) -> Callable[..., Any]:
  """`step`, `(state, *args) -> state`, which computes large matrices of the state some rows after another, in place.

  The gradient of a dense layer's weights is a product, and most optimizers go over it element by element. Done for the
  matrix as a whole, the gradient goes to memory and back. Here the product and what is made of it are computed for a
  tile of rows at a time. Such results are found in the program of `step`; where a gradient is needed as a whole (for
  its norm, to communicate it), they are computed as a whole.

  Args:
    step: a function whose result has the structure of its first argument.
    tile_bytes: see :func:`number_of_tiles`.

  >>> step = lambda w, x: w - 0.1 * x.T @ jax.numpy.tanh(x @ w)
  >>> w, x = jax.numpy.ones((1024, 1024)), jax.numpy.ones((2, 1024))
  >>> bool(jax.numpy.allclose(in_tiles(step)(w, x), step(w, x)))
  True
  >>> 'f32[256,1024] = dot_general' in str(jax.make_jaxpr(in_tiles(step))(w, x))
  True
  """

  def tiled(state, *args):
    closed, shapes = jax.make_jaxpr(step, return_shape=True)(state, *args)
    program = _alive(closed.jaxpr, closed.jaxpr.outvars)
    loops = _loops(program, len(jax.tree.leaves(state)), tile_bytes)
    if not loops:
      return step(state, *args)
    out = _evaluate(program, closed.consts, jax.tree.leaves((state, *args)), loops)
    return jax.tree.unflatten(jax.tree.structure(shapes), out)

  return tiled


def number_of_tiles(shape: tuple[int, ...], size: int, tile_bytes: int | None = None) -> int:
  """The tiles of a matrix of `size` bytes: of 1 MB for one of 4 MB or more; 1 if its rows cannot be divided so.

  `python -m benchmarks choices` on 2 cores, VRL-SGD, k = 20, time relative to tiles of 1 MB, of 512 kB, of 2 MB and
  whole: a matrix of 4 MB 1.02, 0.99, 1.01; of 8 MB 1.09, 1.01, 1.15; of 16 MB 1.05, 1.00, 1.12.

  Args:
    shape: of the matrix.
    size: of the matrix, in bytes.
    tile_bytes: the most that a tile has, for matrices of any size; 0 for no tiles; None chooses.

  >>> number_of_tiles((2048, 1024), 8 << 20), number_of_tiles((1024, 200), 800 << 10)
  (8, 1)
  >>> number_of_tiles((2039, 1024), 8 << 20), number_of_tiles((1024, 200), 800 << 10, tile_bytes=400 << 10)
  (1, 2)
  """
  if tile_bytes == 0 or len(shape) < 2 or (tile_bytes is None and size < _LARGE):
    return 1
  least = -(-size // (tile_bytes or _TILE))
  return next((count for count in range(least, 4 * least) if shape[0] % count == 0), 1)


class _Loop(NamedTuple):
  """Results of a program, all of one shape, that are computed in tiles.

  Attributes:
    places: where they are among the program's results; their old values are at the same places of its arguments.
    count: of the tiles.
    whole: the variables that the loop needs as a whole.
  """

  places: list[int]
  count: int
  whole: set


def _alive(program, results):
  """The program of these results, without what none of them needs."""
  needed, equations = set(_variables(results)), []
  for equation in reversed(program.eqns):
    if equation.effects or not needed.isdisjoint(equation.outvars):
      equations.append(equation)
      needed.update(_variables(equation.invars))
  return program.replace(eqns=equations[::-1], outvars=list(results))


def _variables(atoms):
  return [atom for atom in atoms if not isinstance(atom, Literal)]


def _makers(program):
  return {var: equation for equation in program.eqns for var in equation.outvars}


def _loops(program, states, tile_bytes):
  by_shape = {}
  for place, (old, new) in enumerate(zip(program.invars[:states], program.outvars)):
    if _variables([new]) and new is not old and old.aval.size:
      by_shape.setdefault(old.aval.shape, []).append(place)
  loops = []
  for shape, places in by_shape.items():
    size = max(program.invars[place].aval.size * program.invars[place].aval.dtype.itemsize for place in places)
    count = number_of_tiles(shape, size, tile_bytes)
    if count > 1 and (whole := _needed_whole(program, places)) is not None:
      loops.append(_Loop(places, count, whole))
  return loops


def _needed_whole(program, places):
  """What a loop for the results at `places` needs as a whole; None if it cannot be made, or would save nothing."""
  makers, old = _makers(program), {program.invars[place] for place in places}
  inside, whole, seen = {}, set(), set()

  def visit(var, axis):
    if (var, axis) in seen:
      return
    seen.add((var, axis))
    equation = makers.get(var)
    axes = equation and _axes_of_operands(equation, axis)
    if axes is None:
      if var not in old or axis:
        whole.add(var)
      return
    inside[id(equation)] = equation
    for operand, operand_axis in zip(equation.invars, axes):
      if isinstance(operand, Literal):
        continue
      if operand_axis is None or equation.primitive.name == 'dot_general':
        whole.add(operand)
      else:
        visit(operand, operand_axis)

  for place in places:
    visit(program.outvars[place], 0)
  outside = set(_variables(var for place, var in enumerate(program.outvars) if place not in places))
  outside.update(*(_variables(equation.invars) for equation in program.eqns if id(equation) not in inside))
  made = {var for equation in inside.values() for var in equation.outvars}
  has_product = any(equation.primitive.name == 'dot_general' for equation in inside.values())
  possible = has_product and made.isdisjoint(outside | whole) and old.isdisjoint(whole)
  return whole if possible else None


def _axes_of_operands(equation, axis):
  """Along which axis each operand is cut for a result that is cut along `axis`, None for not; None if that cannot be."""
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


def _evaluate(program, consts, args, loops):
  tiled = {place for loop in loops for place in loop.places}
  others = [place for place in range(len(program.outvars)) if place not in tiled]
  whole = [var for loop in loops for var in loop.whole]
  rest = _alive(program, [*(program.outvars[place] for place in others), *whole])
  values = jaxpr_as_fun(ClosedJaxpr(rest, consts))(*args)
  out, known = dict(zip(others, values)), dict(zip(whole, values[len(others) :]))
  for loop in loops:
    out.update(zip(loop.places, _run(program, loop, known, [args[place] for place in loop.places])))
  return [out[place] for place in range(len(out))]


def _run(program, loop, known, start):
  makers, old = _makers(program), [program.invars[place] for place in loop.places]
  rows = old[0].aval.shape[0] // loop.count

  def tile(i, state):
    sources, done = known | dict(zip(old, state)), {}

    def cut(var, axis):
      if (var, axis) not in done:
        here = sources.get(var)
        made = compute(makers[var], axis) if here is None else lax.dynamic_slice_in_dim(here, i * rows, rows, axis)
        done[var, axis] = made
      return done[var, axis]

    def compute(equation, axis):
      operands = [
        atom.val if isinstance(atom, Literal) else sources[atom] if cut_at is None else cut(atom, cut_at)
        for atom, cut_at in zip(equation.invars, _axes_of_operands(equation, axis))
      ]
      params = dict(equation.params)
      if equation.primitive.name == 'broadcast_in_dim':
        params['shape'] = tuple(rows if d == axis else size for d, size in enumerate(params['shape']))
      return equation.primitive.bind(*operands, **params)

    new = [cut(program.outvars[place], 0) for place in loop.places]
    return [lax.dynamic_update_slice_in_dim(x, part, i * rows, 0) for x, part in zip(state, new)]

  return lax.fori_loop(0, loop.count, tile, start)
