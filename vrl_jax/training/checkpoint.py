"""Writes checkpoints with Orbax: the complete state of every worker, independent of the devices."""

import contextlib
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from vrl_jax.cluster import processes
from vrl_jax.engine.placement import Placement
from vrl_jax.errors import DataError, StorageError
from vrl_jax.training.orbax_errors import cause, without_secondary_errors
from vrl_jax.training.parts import checksums, rows
from vrl_jax.training.restore import (
  FOLDER,
  MAIN_PROCESS_ONLY,
  describe_leaves,
  read_metadata,
  stored_form,
  stored_steps,
  with_checksum,
)

_KEPT = 3


class CheckpointWriter:
  """Writes the checkpoints of one run.

  They are written in the background, each of them atomically. The last three are kept, and the one with the best
  training loss. If several processes share the directory, each writes the parts of its own devices. Else only process 0
  writes, and the state of all workers must fit into its memory.

  Attributes:
    together: whether all processes write.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   with CheckpointWriter.open(pathlib.Path(workdir)) as writer:
  ...     for step, loss in ((10, 0.5), (20, 0.1), (30, 0.4), (40, 0.3), (50, 0.2)):
  ...       writer.save(step, {'x': np.zeros(8)}, {'train_loss': loss})
  ...   stored_steps(pathlib.Path(workdir))  # the best and the last three
  [20, 30, 40, 50]
  """

  def __init__(
    self, folder: pathlib.Path, policy: '_LastAndBest', manager: ocp.CheckpointManager | None, together: bool = False
  ):
    """Use `open`."""
    self.together = together
    self._folder = folder
    self._policy = policy
    self._manager = manager

  @classmethod
  @contextlib.contextmanager
  def open(
    cls, workdir: pathlib.Path, through: pathlib.Path | None = None, together: bool = False
  ) -> Iterator['CheckpointWriter']:
    """Yields a writer for a run directory; at the end it waits for the last write.

    Args:
      workdir: the run directory.
      through: another path of it, to write through (see `DirectoryLock.locked_path`).
      together: whether all processes write; they must share the directory.

    Raises:
      StorageError: a checkpoint cannot be written.
    """
    folder = workdir / FOLDER
    if not (together or processes.is_main()):
      yield cls(folder, _LastAndBest({}), None)
      return
    policy = _LastAndBest({step: _train_loss(workdir, step) for step in stored_steps(workdir)})
    options = ocp.CheckpointManagerOptions(
      preservation_policy=policy,
      cleanup_tmp_directories=True,
      create=False,
      multiprocessing_options=ocp.options.MultiprocessingOptions() if together else MAIN_PROCESS_ONLY,
      # Otherwise, if the folders cannot be created, Orbax's threads wait for them for five minutes.
      async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
    )
    with without_secondary_errors():
      with _storage_errors(folder):
        written = (through or workdir).absolute() / FOLDER
        if processes.is_main():
          written.mkdir(exist_ok=True)
        if together:
          processes.wait_for_all()
        manager = ocp.CheckpointManager(written, options=options)
      try:
        yield cls(folder, policy, manager, together)
      except BaseException:
        with contextlib.suppress(StorageError), _storage_errors(folder):  # the first error is the one to report
          manager.close()
        raise
      with _storage_errors(folder):
        manager.close()

  def host_copy(self, state: Any, placement: Placement) -> Any:
    """What `save` takes: a copy of leaves [D, N/D, ...] of the devices; None in a process that writes nothing."""
    return rows(state, placement) if self.together else to_host(placement.gather(state))

  def save(self, step: int, state: Any, metadata: dict[str, Any]) -> None:
    """Starts to write a checkpoint.

    Args:
      step: the step of the state.
      state: the `host_copy`, NumPy leaves [N, ...], or `vrl_jax.training.parts.rows` if all processes write.
      metadata: small values to store with it; the last measured `train_loss` decides which checkpoint is the best.

    Raises:
      StorageError: this or the previous checkpoint cannot be written.
    """
    if self._manager is None:  # process 0 writes alone, and this is another
      return
    leaves = describe_leaves(state, checksums=not self.together)
    if self.together:
      leaves = [[*leaf, value] for leaf, value in zip(leaves, checksums(state), strict=True)]
    metadata = with_checksum(metadata | {'time': time.time(), 'leaves': leaves})
    args = ocp.args.Composite(state=ocp.args.StandardSave(stored_form(state)), about=ocp.args.JsonSave(metadata))
    with _storage_errors(self._folder):
      self._policy.train_losses[step] = metadata['train_loss']
      self._manager.save(step, args=args, force=True)

  def wait(self) -> None:
    """Returns when everything is on disk."""
    if self._manager is None:
      return
    with _storage_errors(self._folder):
      self._manager.wait_until_finished()


@contextlib.contextmanager
def _storage_errors(folder):
  try:
    yield
  except Exception as error:  # Orbax and TensorStore raise errors of many types
    message = f'{folder}: a checkpoint cannot be written ({cause(error)}); earlier checkpoints are intact'
    raise StorageError(message) from error


class _LastAndBest(checkpoint_managers.PreservationPolicy):
  """Keeps the last checkpoints and the first of those with the lowest training loss."""

  def __init__(self, train_losses):
    self.train_losses = train_losses

  def should_preserve(self, checkpoints, *, context):
    del context
    steps = [checkpoint.step for checkpoint in checkpoints]
    keep = {*sorted(steps)[-_KEPT:], best_step({step: self.train_losses.get(step) for step in steps})}
    return [step in keep for step in steps]


def best_step(train_losses: dict[int, float | None]) -> int | None:
  """The first step with the lowest training loss; None (not readable) is ignored.

  >>> best_step({10: 0.5, 20: 0.25, 30: 0.25, 40: None})
  20
  """
  known = [(loss, step) for step, loss in train_losses.items() if loss is not None]
  return min(known)[1] if known else None


def to_host(state: Any) -> Any:
  """Leaves [D, N/D, ...] as NumPy copies [N, ...].

  >>> to_host({'x': jax.numpy.zeros((2, 4, 3))})['x'].shape  # two devices of four workers
  (8, 3)
  """
  return jax.tree.map(lambda x: np.array(x).reshape(-1, *x.shape[2:]), state)


def host_shapes(state: Any) -> Any:
  """The shapes and types of `to_host(state)`, for a template.

  >>> host_shapes({'x': jax.ShapeDtypeStruct((2, 4, 3), 'float32')})
  {'x': ShapeDtypeStruct(shape=(8, 3), dtype=float32)}
  """
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct((x.shape[0] * x.shape[1], *x.shape[2:]), x.dtype), state)


def _train_loss(workdir, step):
  try:
    return read_metadata(workdir, step)['train_loss']
  except DataError:
    return None
