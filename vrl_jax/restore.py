"""Reads checkpoints, and finds the newest that is whole.

Each has, under its step's number, the Orbax items `state` (the arrays of all workers) and `about`, which says what
they are: config, names, types, shapes and checksums.
"""

import functools
import logging
import pathlib
import sys
import textwrap
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from vrl_jax import hosts
from vrl_jax.arrangement import Arrangement
from vrl_jax.errors import DataError
from vrl_jax.runfolder import differences

FOLDER = 'checkpoints'
ALONE = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
"""For Orbax: of several processes the first works alone, and waits for no other."""


class Restored(NamedTuple):
  """A checkpoint that was read.

  Attributes:
    step: the step that the state had reached.
    state: NumPy leaves [N, ...].
    about: what was stored about it: `seconds`, `train_loss`, `time`, `config`, `leaves`.

  >>> Restored(step=40, state={'x': np.zeros(8)}, about={'train_loss': 0.5}).about['train_loss']
  0.5
  """

  step: int
  state: Any
  about: dict[str, Any]


class ForeignCheckpoint(DataError):
  """A checkpoint that another config or another version of the code made.

  >>> error = ForeignCheckpoint('runs/a: the checkpoint of step 40 is not of this run: period=5 there and 10 now')
  >>> isinstance(error, DataError), error.exit_status
  (True, 3)
  """


def stored_steps(workdir: pathlib.Path) -> list[int]:
  """The steps that have a checkpoint, in order.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   for name in ('400', '80', '120.orbax-checkpoint-tmp'):  # the last was cut off
  ...     pathlib.Path(workdir, FOLDER, name).mkdir(parents=True)
  ...   stored_steps(pathlib.Path(workdir))
  [80, 400]
  """
  folder = workdir / FOLDER
  return sorted(int(path.name) for path in folder.glob('*') if path.name.isdigit()) if folder.is_dir() else []


def read_about(workdir: pathlib.Path, step: int) -> dict[str, Any]:
  """What was stored about a checkpoint; a DataError if it cannot be read.

  >>> import tempfile
  >>> from vrl_jax.checkpoint import Checkpoints
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   with Checkpoints(pathlib.Path(workdir)) as checkpoints:
  ...     checkpoints.save(40, {'x': np.zeros(8)}, {'train_loss': 0.5, 'seconds': 1.5, 'config': {'period': 5}})
  ...   about = read_about(pathlib.Path(workdir), 40)
  >>> about['train_loss'], about['config'], about['leaves'][0][:3]
  (0.5, {'period': 5}, ['x', 'float64', [8]])
  """
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

  >>> import tempfile
  >>> from vrl_jax.checkpoint import Checkpoints
  >>> state = {'x': np.arange(3.0)}
  >>> with tempfile.TemporaryDirectory() as name:
  ...   workdir = pathlib.Path(name)
  ...   with Checkpoints(workdir) as checkpoints:
  ...     checkpoints.save(40, state, {'train_loss': 0.5, 'seconds': 1.5, 'config': {}})
  ...   read_state(workdir, 40, template=state, about=read_about(workdir, 40))
  {'x': array([0., 1., 2.])}
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
    with ocp.Checkpointer(ocp.StandardCheckpointHandler(), multiprocessing_options=ALONE) as checkpointer:
      path = workdir.absolute() / FOLDER / str(step) / 'state'
      state = checkpointer.restore(path, args=ocp.args.StandardRestore(stored_form(zeros)))
    if not isinstance(state, type(template)):
      state = template._replace(**state)
    # Orbax neither compares shapes nor keeps checksums of the numbers.
    if describe_leaves(state, checksums=True) != about['leaves']:
      raise ValueError('checksums differ')
    return state
  except Exception as error:  # as above
    raise _damaged(workdir, step, error) from error


def stored_form(state: Any) -> Any:
  """What is stored of a state: all, but for a `WorkerState` without batch statistics its other parts, as ever.

  >>> from vrl_jax.rounds import WorkerState
  >>> stored_form(WorkerState(params=1.0, opt_state=(), step=2, loss_sum=3.0))
  {'params': 1.0, 'opt_state': (), 'step': 2, 'loss_sum': 3.0}
  """
  if getattr(state, 'batch_stats', None) != ():
    return state
  return {name: part for name, part in state._asdict().items() if name != 'batch_stats'}


def restore_newest(workdir: pathlib.Path, template: Any, config: dict[str, Any]) -> Restored | None:
  """The newest checkpoint that can be read; None if there is none at all.

  Those that are damaged are set aside, with a line on stderr.

  Args:
    workdir: the run's folder.
    template: a tree of the state's structure, with leaves [N, ...].
    config: the fields of the run's config; what a checkpoint stores of them must be the same.

  Raises:
    DataError: there are checkpoints and none of them can be read, or one is of another config. Nothing has changed.

  >>> import tempfile
  >>> from vrl_jax.checkpoint import Checkpoints
  >>> state, about = {'x': np.arange(3.0)}, {'train_loss': 0.5, 'seconds': 1.5, 'config': {'period': 5}}
  >>> with tempfile.TemporaryDirectory() as name:
  ...   workdir = pathlib.Path(name)
  ...   with Checkpoints(workdir) as checkpoints:
  ...     for step in (40, 80):
  ...       checkpoints.save(step, state, about)
  ...   restore_newest(workdir, template=state, config={'period': 5}).step
  80
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


def restore_for_all(
  workdir: pathlib.Path, template: Any, config: dict[str, Any], arrangement: Arrangement
) -> Restored | None:
  """As `restore_newest`, in a run of any number of processes: process 0 reads, and the others get it from there.

  >>> import tempfile
  >>> from vrl_jax.arrangement import arrange
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   print(restore_for_all(pathlib.Path(workdir), {'x': np.zeros(2)}, {}, arrange(workers=2, devices=1)))
  None
  """
  found = restore_newest(workdir, template, config) if hosts.is_main() else None
  facts = hosts.from_main(lambda: found and [found.step, found.about])
  if facts is None:
    return None
  state = found.state if found else jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
  return Restored(facts[0], arrangement.from_main(state), facts[1])


def describe_leaves(tree: Any, checksums: bool = False) -> list[list[Any]]:
  """Name, type and shape of every leaf, and the CRC-32 of its bytes if asked for; what JSON gives back unchanged.

  >>> describe_leaves({'a': np.zeros((8, 2), np.float32)}, checksums=True)
  [['a', 'float32', [8, 2], 1972200246]]
  """
  return [
    [jax.tree_util.keystr(path, simple=True, separator='/'), str(x.dtype), list(x.shape)]
    + ([checksum(x)] if checksums else [])
    for path, x in jax.tree_util.tree_leaves_with_path(tree)
  ]


def checksum(x: np.ndarray) -> int:
  """The CRC-32 of an array's bytes.

  >>> checksum(np.arange(3)) == checksum(np.array([0, 1, 2])), checksum(np.arange(3)) == checksum(np.array([0, 1, 3]))
  (True, False)
  """
  return zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8))


def reason(error: Exception) -> str:
  """The first line of what Orbax or TensorStore say.

  >>> reason(ValueError('NOT_FOUND: no such file\\nat tensorstore/kvstore.cc:12')), reason(KeyError())
  ('NOT_FOUND: no such file', 'KeyError')
  """
  lines = str(error).strip().splitlines()
  return textwrap.shorten(lines[0], 160, placeholder='…') if lines else type(error).__name__


@functools.cache
def hush_stragglers() -> None:
  """Keeps TensorStore and asyncio from printing tracebacks of their own.

  When one array cannot be read or written, Orbax reports that one and closes its event loop. Of the others, those still
  at work then complain that it is closed, and those that failed too that nobody asked why.

  >>> hush_stragglers()  # for the rest of the process
  >>> hush_stragglers()  # a second call changes nothing
  >>> hush_stragglers.cache_info().misses
  1
  """
  before = sys.unraisablehook

  def hook(unraisable):
    if str(unraisable.exc_value) != 'Event loop is closed':
      before(unraisable)

  sys.unraisablehook = hook
  logging.getLogger('asyncio').addFilter(_is_no_straggler)


def _is_no_straggler(record):
  error = record.exc_info[1] if record.exc_info else None
  return not ('never retrieved' in record.getMessage() and 'tensorstore' in str(error))


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
