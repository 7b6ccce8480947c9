"""Writes checkpoints with Orbax: the whole state of every worker, independent of the devices it was on."""

import contextlib
import pathlib
import time
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from vrl_jax import hosts
from vrl_jax.errors import DataError
from vrl_jax.restore import (
  ALONE,
  FOLDER,
  describe_leaves,
  hush_stragglers,
  read_about,
  reason,
  stored_form,
  stored_steps,
)
from vrl_jax.runfolder import StorageError

_KEEP = 3


class Checkpoints:
  """Writes the checkpoints of one run; a context manager that waits for the last write.

  They are written in the background and appear whole or not at all. The last three are kept, and the one whose
  train loss was best when it was made. Of several processes only the first writes, so the folder need not be shared;
  the state of all workers must fit into its memory.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   with Checkpoints(pathlib.Path(workdir)) as checkpoints:
  ...     for step, loss in ((10, 0.5), (20, 0.1), (30, 0.4), (40, 0.3), (50, 0.2)):
  ...       checkpoints.save(step, {'x': np.zeros(8)}, {'train_loss': loss})
  ...   stored_steps(pathlib.Path(workdir))  # the best and the last three
  [20, 30, 40, 50]
  """

  def __init__(self, workdir: pathlib.Path):
    """Opens (or makes) the folder's checkpoints."""
    if not hosts.is_main():
      return
    self._folder = workdir / FOLDER
    self._policy = _LastAndBest({step: _train_loss(workdir, step) for step in stored_steps(workdir)})
    options = ocp.CheckpointManagerOptions(
      preservation_policy=self._policy, cleanup_tmp_directories=True, create=False, multiprocessing_options=ALONE
    )
    hush_stragglers()
    with self._told():
      self._folder.mkdir(exist_ok=True)
      self._manager = ocp.CheckpointManager(self._folder.absolute(), options=options)

  def __enter__(self):
    return self

  @hosts.main_only
  def __exit__(self, kind, *_):
    try:
      with self._told():
        self._manager.close()
    except StorageError:
      if kind is None:  # else what happened first is what counts
        raise

  @hosts.main_only
  def save(self, step: int, state: Any, about: dict[str, Any]) -> None:
    """Starts to write a checkpoint.

    Args:
      step: the step that the state has reached.
      state: NumPy leaves [N, ...], which nobody changes from here on.
      about: small facts to store beside it; `train_loss`, the last one measured, decides which is the best.

    Raises:
      StorageError: it, or the one before it, cannot be written.
    """
    about = about | {'time': time.time(), 'leaves': describe_leaves(state, checksums=True)}
    args = ocp.args.Composite(state=ocp.args.StandardSave(stored_form(state)), about=ocp.args.JsonSave(about))
    with self._told():
      self._policy.train_losses[step] = about['train_loss']
      self._manager.save(step, args=args, force=True)

  @hosts.main_only
  def wait(self) -> None:
    """Returns when everything is on disk."""
    with self._told():
      self._manager.wait_until_finished()

  @contextlib.contextmanager
  def _told(self):
    try:
      yield
    except Exception as error:  # whatever Orbax and TensorStore raise when they cannot write
      raise StorageError(
        f'{self._folder}: a checkpoint cannot be written ({reason(error)}); those before it are whole'
      ) from error


class _LastAndBest(checkpoint_managers.PreservationPolicy):
  """Keeps the last checkpoints and the first of those with the least train loss."""

  def __init__(self, train_losses):
    self.train_losses = train_losses

  def should_preserve(self, checkpoints, *, context):
    del context
    steps = [checkpoint.step for checkpoint in checkpoints]
    keep = {*sorted(steps)[-_KEEP:], best_step({step: self.train_losses.get(step) for step in steps})}
    return [step in keep for step in steps]


def best_step(train_losses: dict[int, float | None]) -> int | None:
  """The first step with the least train loss; None (not readable) is no loss.

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


def on_host(state: Any) -> Any:
  """The shapes and types of `to_host`, for a template.

  >>> on_host({'x': jax.ShapeDtypeStruct((2, 4, 3), 'float32')})
  {'x': ShapeDtypeStruct(shape=(8, 3), dtype=float32)}
  """
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct((x.shape[0] * x.shape[1], *x.shape[2:]), x.dtype), state)


def _train_loss(workdir, step):
  try:
    return read_about(workdir, step)['train_loss']
  except DataError:
    return None
