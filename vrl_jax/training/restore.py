"""Reads checkpoints and finds the newest intact one.

A checkpoint is a directory named after its step, with two Orbax items: `state`, the arrays of all workers, and `about`,
the metadata: config, training loss, the name, type, shape and checksum of every array, and a checksum of all this.
"""

import json
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from vrl_jax.errors import DataError, ForeignCheckpoint, UserError
from vrl_jax.system.storage import checksum
from vrl_jax.training.extension import is_longer
from vrl_jax.training.orbax_errors import cause, without_secondary_errors
from vrl_jax.training.run_directory import differences

FOLDER = 'checkpoints'
"""The sub-directory of a run directory that holds its checkpoints."""
MAIN_PROCESS_ONLY = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
"""An option of Orbax: process 0 reads and writes alone, without waiting for the others."""
_KINDS = {'seconds': float, 'train_loss': float, 'time': float, 'config': dict, 'leaves': list}


class Restored(NamedTuple):
  """A checkpoint in memory.

  Attributes:
    step: the step of the state.
    state: the state of all workers, NumPy leaves [N, ...].
    metadata: see `read_metadata`.

  >>> Restored(step=40, state={'x': np.zeros(8)}, metadata={'train_loss': 0.5}).metadata['train_loss']
  0.5
  """

  step: int
  state: Any
  metadata: dict[str, Any]


def stored_steps(workdir: pathlib.Path) -> list[int]:
  """The steps that have a checkpoint, in increasing order.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   for name in ('400', '80', '120.orbax-checkpoint-tmp'):  # the last is incomplete
  ...     pathlib.Path(workdir, FOLDER, name).mkdir(parents=True)
  ...   stored_steps(pathlib.Path(workdir))
  [80, 400]
  """
  folder = workdir / FOLDER
  return sorted(int(path.name) for path in folder.glob('*') if path.name.isdigit()) if folder.is_dir() else []


def read_metadata(workdir: pathlib.Path, step: int) -> dict[str, Any]:
  """Reads the metadata of a checkpoint.

  Returns:
    `seconds` of training, `train_loss`, `time` (when it was written), `config`, `data` (see `data_fields` in
    fingerprint.py), `leaves` (see `describe_leaves`), and `longer_runs_have_it`, whether a run of more steps passes
    through the same state.

  Raises:
    DataError: it is damaged.

  >>> import tempfile
  >>> from vrl_jax.training.checkpoint import CheckpointWriter
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   with CheckpointWriter.open(pathlib.Path(workdir)) as writer:
  ...     writer.save(40, {'x': np.zeros(8)}, {'train_loss': 0.5, 'seconds': 1.5, 'config': {'period': 5}})
  ...   metadata = read_metadata(pathlib.Path(workdir), 40)
  >>> metadata['train_loss'], metadata['config'], metadata['leaves'][0][:3]
  (0.5, {'period': 5}, ['x', 'float64', [8]])
  """
  try:
    metadata = ocp.JsonCheckpointHandler().restore(workdir.absolute() / FOLDER / str(step) / 'about')
    for name, kind in _KINDS.items():
      if not isinstance(metadata[name], kind):
        raise ValueError(f'{name} is not a {kind.__name__}')
    # Commit 14bef54 and earlier stored these fields alone, without a checksum.
    if metadata.keys() != _KINDS.keys() and metadata != with_checksum(metadata):
      raise ValueError('the checksum of the metadata differs')
    return metadata
  except Exception as error:  # damaged files make Orbax, TensorStore and JSON raise errors of many types
    raise damaged_checkpoint(workdir, step, error) from error


def with_checksum(metadata: dict[str, Any]) -> dict[str, Any]:
  """The metadata with the CRC-32 of their JSON form, in which the keys are sorted, as `checksum`.

  >>> with_checksum({'train_loss': 0.5, 'seconds': 1.5})
  {'train_loss': 0.5, 'seconds': 1.5, 'checksum': 371708552}
  """
  covered = {name: value for name, value in metadata.items() if name != 'checksum'}
  return covered | {'checksum': checksum(json.dumps(covered, sort_keys=True).encode())}


def read_state(workdir: pathlib.Path, step: int, template: Any, metadata: dict[str, Any]) -> Any:
  """Reads the state of a checkpoint as NumPy leaves [N, ...].

  Args:
    workdir: the run directory.
    step: one of `stored_steps`.
    template: a tree of the same structure, shapes and types.
    metadata: from `read_metadata`.

  Raises:
    DataError: it is damaged.
    ForeignCheckpoint: it is intact, but has another structure, shape or type.

  >>> import tempfile
  >>> from vrl_jax.training.checkpoint import CheckpointWriter
  >>> state = {'x': np.arange(3.0)}
  >>> with tempfile.TemporaryDirectory() as name:
  ...   workdir = pathlib.Path(name)
  ...   with CheckpointWriter.open(workdir) as writer:
  ...     writer.save(40, state, {'train_loss': 0.5, 'seconds': 1.5, 'config': {}})
  ...   read_state(workdir, 40, template=state, metadata=read_metadata(workdir, 40))
  {'x': array([0., 1., 2.])}
  """
  require_same_leaves(workdir, step, template, metadata)
  try:
    state = read_leaves(workdir, step, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template), MAIN_PROCESS_ONLY)
    # Orbax neither compares shapes nor stores checksums of the values.
    if describe_leaves(state, checksums=True) != metadata['leaves']:
      raise ValueError('checksums differ')
    return state
  except Exception as error:  # as in read_metadata
    raise damaged_checkpoint(workdir, step, error) from error


def require_same_leaves(workdir: pathlib.Path, step: int, template: Any, metadata: dict[str, Any]) -> None:
  """Raises ForeignCheckpoint unless a checkpoint has the structure, shapes and types of a template.

  >>> require_same_leaves(pathlib.Path('run'), 40, {'x': np.zeros(3)}, {'leaves': [['x', 'float64', [4], 0]]})
  Traceback (most recent call last):
    ...
  vrl_jax.errors.ForeignCheckpoint: run: the checkpoint of step 40 is from another run: x: float64[4] there and \
x: float64[3] now
  """
  expected = describe_leaves(template)
  for there, here in zip(metadata['leaves'], expected):
    if there[:3] != here:
      raise _foreign(workdir, step, f'{_shape(there)} there and {_shape(here)} now')
  if len(metadata['leaves']) != len(expected):
    raise _foreign(workdir, step, f'{len(metadata["leaves"])} arrays there and {len(expected)} now')


def read_leaves(workdir: pathlib.Path, step: int, template: Any, processes: ocp.options.MultiprocessingOptions) -> Any:
  """Reads the state of a checkpoint into the types and shardings of a template, without a check of its values.

  >>> import tempfile
  >>> from vrl_jax.training.checkpoint import CheckpointWriter
  >>> with tempfile.TemporaryDirectory() as name:
  ...   workdir = pathlib.Path(name)
  ...   with CheckpointWriter.open(workdir) as writer:
  ...     writer.save(40, {'x': np.arange(3.0)}, {'train_loss': 0.5, 'seconds': 1.5, 'config': {}})
  ...   read_leaves(workdir, 40, {'x': jax.numpy.zeros(3)}, MAIN_PROCESS_ONLY)
  {'x': Array([0., 1., 2.], dtype=float32)}
  """
  with (
    without_secondary_errors(),
    ocp.Checkpointer(ocp.StandardCheckpointHandler(), multiprocessing_options=processes) as checkpointer,
  ):
    path = workdir.absolute() / FOLDER / str(step) / 'state'
    state = checkpointer.restore(path, args=ocp.args.StandardRestore(stored_form(template)))
  return state if isinstance(state, type(template)) else template._replace(**state)


def stored_form(state: Any) -> Any:
  """The tree that is stored: the state, but a `WorkerState` without batch statistics as a dict of its other fields.

  That is how checkpoints were stored before batch statistics were added.

  >>> from vrl_jax.engine.state import WorkerState
  >>> stored_form(WorkerState(params=1.0, opt_state=(), step=2, loss_sum=3.0))
  {'params': 1.0, 'opt_state': (), 'step': 2, 'loss_sum': 3.0}
  """
  if getattr(state, 'batch_stats', None) != ():
    return state
  return {name: part for name, part in state._asdict().items() if name != 'batch_stats'}


def restore_newest(
  workdir: pathlib.Path, template: Any, config: dict[str, Any], read: Callable[..., Any] = read_state
) -> Restored | None:
  """Reads the newest intact checkpoint; None if the run has no checkpoint.

  Damaged checkpoints that are newer are renamed, with a line on stderr. If the run is extended, the checkpoint after a
  last round that the longer run does not have is removed.

  Args:
    workdir: the run directory.
    template: a tree of the state's structure, with leaves [N, ...].
    config: the fields of the run's config; those that decide the result must be the same in the checkpoint.
    read: reads a state, as `read_state`.

  Raises:
    DataError: all checkpoints are damaged, or one has another config. Nothing has changed on disk.
    UserError: the run cannot be extended. Nothing has changed on disk.

  >>> import tempfile
  >>> from vrl_jax.training.checkpoint import CheckpointWriter
  >>> state, metadata = {'x': np.arange(3.0)}, {'train_loss': 0.5, 'seconds': 1.5, 'config': {'period': 5}}
  >>> with tempfile.TemporaryDirectory() as name:
  ...   workdir = pathlib.Path(name)
  ...   with CheckpointWriter.open(workdir) as writer:
  ...     for step in (40, 80):
  ...       writer.save(step, state, metadata)
  ...   restore_newest(workdir, template=state, config={'period': 5}).step
  80
  """
  damaged: list[tuple[int, DataError]] = []
  passed_over: list[int] = []
  for step in reversed(stored_steps(workdir)):
    try:
      metadata = read_metadata(workdir, step)
      if differing := differences(metadata['config'], config):
        raise _foreign(workdir, step, differing)
      if is_longer(metadata['config'], config) and not metadata.get('longer_runs_have_it'):
        passed_over.append(step)
        continue
      state = read(workdir, step, template, metadata)
    except ForeignCheckpoint:
      raise
    except DataError as error:
      damaged.append((step, error))
      continue
    for bad_step, reason in damaged:
      kept = _rename_damaged(workdir, bad_step)
      print(f'{reason}; resuming from step {step}, the damaged checkpoint is kept as {kept}', file=sys.stderr)
    for shorter_step in passed_over:
      shutil.rmtree(workdir / FOLDER / str(shorter_step))
    return Restored(step, state, metadata)
  if passed_over:
    raise UserError(
      f'{workdir}: cannot be extended: the last round of the run was shorter than in a longer run, and there is no intact '
      'checkpoint from before it; choose another --workdir'
    )
  if damaged:
    folder = workdir / FOLDER
    raise DataError(f'{damaged[0][1]}, nor can any other; move {folder} away to start from step 0')
  return None


def describe_leaves(tree: Any, checksums: bool = False) -> list[list[Any]]:
  """Name, type and shape of every leaf, optionally with the CRC-32 of its bytes, as JSON can represent them.

  >>> describe_leaves({'a': np.zeros((8, 2), np.float32)}, checksums=True)
  [['a', 'float32', [8, 2], 1972200246]]
  """
  return [
    [jax.tree_util.keystr(path, simple=True, separator='/'), str(x.dtype), list(x.shape)]
    + ([checksum(x)] if checksums else [])
    for path, x in jax.tree_util.tree_leaves_with_path(tree)
  ]


def _rename_damaged(workdir, step):
  """Renames a damaged checkpoint so that the step can be saved again."""
  names = (f'unreadable_checkpoint_{step}{suffix}' for suffix in ('', *(f'.{n}' for n in range(1, 1000))))
  path = next(workdir / name for name in names if not (workdir / name).exists())
  return (workdir / FOLDER / str(step)).rename(path)


def damaged_checkpoint(workdir: pathlib.Path, step: int, error: Exception) -> DataError:
  """The error for a checkpoint that cannot be read.

  >>> damaged_checkpoint(pathlib.Path('run'), 40, ValueError('checksums differ'))
  DataError('run: the checkpoint of step 40 cannot be read (checksums differ)')
  """
  return DataError(f'{workdir}: the checkpoint of step {step} cannot be read ({cause(error)})')


def _foreign(workdir, step, difference):
  return ForeignCheckpoint(f'{workdir}: the checkpoint of step {step} is from another run: {difference}')


def _shape(leaf):
  name, dtype, shape = leaf[:3]
  return f'{name}: {dtype}{list(shape)}'
