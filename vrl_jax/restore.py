"""Reads checkpoints, and finds the newest that is whole.

Each has, under its step's number, the Orbax items `state` (the arrays of all workers) and `about`, which says what
they are: config, names, types, shapes and checksums.
"""

import functools
import pathlib
import sys
import textwrap
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from vrl_jax.errors import DataError
from vrl_jax.runfolder import differences

FOLDER = 'checkpoints'


class Restored(NamedTuple):
  """A checkpoint that was read.

  Attributes:
    step: the step that the state had reached.
    state: NumPy leaves [N, ...].
    about: what was stored about it: `seconds`, `train_loss`, `time`, `config`, `leaves`.
  """

  step: int
  state: Any
  about: dict[str, Any]


class ForeignCheckpoint(DataError):
  """A checkpoint that another config or another version of the code made."""


def stored_steps(workdir: pathlib.Path) -> list[int]:
  """The steps that have a checkpoint, in order."""
  folder = workdir / FOLDER
  return sorted(int(path.name) for path in folder.glob('*') if path.name.isdigit()) if folder.is_dir() else []


def read_about(workdir: pathlib.Path, step: int) -> dict[str, Any]:
  """What was stored about a checkpoint; a DataError if it cannot be read."""
  try:
    about = ocp.JsonCheckpointHandler().restore(workdir.absolute() / FOLDER / str(step) / 'about')
    for name, kind in (('seconds', float), ('train_loss', float), ('time', float), ('config', dict), ('leaves', list)):
      if not isinstance(about[name], kind):
        raise ValueError(f'{name} is not a {kind.__name__}')
    return about
  except Exception as error:  # whatever a damaged file makes Orbax, TensorStore or JSON raise
    raise _damaged(workdir, step, error) from error


def read_state(workdir: pathlib.Path, step: int, template: Any, about: dict[str, Any]) -> Any:
  """Reads the state of a checkpoint as NumPy leaves [N, ...].

  Args:
    workdir: the run's folder.
    step: one of `stored_steps`.
    template: a tree of the same structure, shapes and types.
    about: from `read_about`.

  Raises:
    DataError: it is damaged.
    ForeignCheckpoint: it is whole, and of another structure, shape or type.
  """
  expected = describe_leaves(template)
  for there, here in zip(about['leaves'], expected):
    if there[:3] != here:
      raise _foreign(workdir, step, f'{_shape(there)} there and {_shape(here)} now')
  if len(about['leaves']) != len(expected):
    raise _foreign(workdir, step, f'{len(about["leaves"])} arrays there and {len(expected)} now')
  zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
  hush_stragglers()
  try:
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
      path = workdir.absolute() / FOLDER / str(step) / 'state'
      state = checkpointer.restore(path, args=ocp.args.StandardRestore(zeros))
    # Orbax neither compares shapes nor keeps checksums of the numbers.
    if describe_leaves(state, checksums=True) != about['leaves']:
      raise ValueError('checksums differ')
    return state
  except Exception as error:  # as above
    raise _damaged(workdir, step, error) from error


def restore_newest(workdir: pathlib.Path, template: Any, config: dict[str, Any]) -> Restored | None:
  """The newest checkpoint that can be read; None if there is none at all.

  Those that are damaged are set aside, with a line on stderr.

  Args:
    workdir: the run's folder.
    template: a tree of the state's structure, with leaves [N, ...].
    config: the fields of the run's config; what a checkpoint stores of them must be the same.

  Raises:
    DataError: there are checkpoints and none of them can be read, or one is of another config. Nothing has changed.
  """
  damaged = []
  for step in reversed(stored_steps(workdir)):
    try:
      about = read_about(workdir, step)
      if other := differences(about['config'], config):
        raise _foreign(workdir, step, other)
      state = read_state(workdir, step, template, about)
    except ForeignCheckpoint:
      raise
    except DataError as error:
      damaged.append((step, error))
      continue
    for bad, error in damaged:
      print(f'{error}; going on from step {step}, it is kept as {_set_aside(workdir, bad)}', file=sys.stderr)
    return Restored(step, state, about)
  if damaged:
    where = workdir / FOLDER
    raise DataError(f'{damaged[0][1]}; no other can be read either: move {where} away to start anew')
  return None


def describe_leaves(tree: Any, checksums: bool = False) -> list[list[Any]]:
  """Name, type and shape of every leaf, and the CRC-32 of its bytes if asked for; what JSON gives back unchanged.

  >>> describe_leaves({'a': np.zeros((8, 2), np.float32)}, checksums=True)
  [['a', 'float32', [8, 2], 1972200246]]
  """
  return [
    [jax.tree_util.keystr(path, simple=True, separator='/'), str(x.dtype), list(x.shape)]
    + ([zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8))] if checksums else [])
    for path, x in jax.tree_util.tree_leaves_with_path(tree)
  ]


def reason(error: Exception) -> str:
  """The first line of what Orbax or TensorStore say."""
  lines = str(error).strip().splitlines()
  return textwrap.shorten(lines[0], 160, placeholder='…') if lines else type(error).__name__


@functools.cache
def hush_stragglers() -> None:
  """Keeps TensorStore from printing tracebacks of its own.

  When one array cannot be read or written, Orbax closes its event loop while TensorStore is still at work on the
  others, and each of them then complains that it is closed.
  """
  before = sys.unraisablehook

  def hook(unraisable):
    if str(unraisable.exc_value) != 'Event loop is closed':
      before(unraisable)

  sys.unraisablehook = hook


def _set_aside(workdir, step):
  """Renames a checkpoint that cannot be read, so that it is kept and its step can be saved again."""
  names = (f'unreadable_checkpoint_{step}{suffix}' for suffix in ('', *(f'.{n}' for n in range(1, 1000))))
  aside = next(workdir / name for name in names if not (workdir / name).exists())
  return (workdir / FOLDER / str(step)).rename(aside)


def _damaged(workdir, step, error):
  return DataError(f'{workdir}: the checkpoint of step {step} cannot be read ({reason(error)})')


def _foreign(workdir, step, difference):
  return ForeignCheckpoint(f'{workdir}: the checkpoint of step {step} is not of this run: {difference}')


def _shape(leaf):
  name, dtype, shape = leaf[:3]
  return f'{name}: {dtype}{list(shape)}'
