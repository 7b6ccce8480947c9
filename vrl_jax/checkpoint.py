"""Checkpoints with Orbax: the whole state of every worker, independent of the devices it was on."""

import pathlib
import sys
import time
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from vrl_jax.arrangement import Arrangement
from vrl_jax.errors import DataError

FOLDER = 'checkpoints'
_KEEP = 3


class Checkpoints:
  """The checkpoints of one run; a context manager that waits for the last write.

  They are written in the background and appear whole or not at all. The last three are kept, and the one whose
  train loss was best when it was made.

  Attributes:
    seconds: the time that `save` has taken from the caller.
  """

  def __init__(self, folder: pathlib.Path):
    """Opens (or makes) the folder's checkpoints."""
    policy = checkpoint_managers.AnyPreservationPolicy(
      [
        checkpoint_managers.LatestN(_KEEP),
        checkpoint_managers.BestN(get_metric_fn=lambda metrics: metrics['train_loss'], reverse=True, n=1),
      ]
    )
    options = ocp.CheckpointManagerOptions(preservation_policy=policy, cleanup_tmp_directories=True)
    self.seconds = 0.0
    self._folder = folder / FOLDER
    self._manager = ocp.CheckpointManager(self._folder.absolute(), options=options)

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._manager.close()

  def steps(self) -> list[int]:
    """The steps that have a checkpoint, in order."""
    return sorted(self._manager.all_steps())

  def save(self, step: int, state: Any, about: dict[str, Any], train_loss: float) -> None:
    """Starts to write a checkpoint; the state may be donated as soon as this returns.

    Args:
      step: the step that the state has reached.
      state: leaves with the leading axes [D, N/D].
      about: small facts to store beside it.
      train_loss: the last one measured, which decides what is the best.
    """
    began = time.perf_counter()
    args = ocp.args.Composite(state=ocp.args.StandardSave(to_host(state)), about=ocp.args.JsonSave(about))
    self._manager.save(step, args=args, metrics={'train_loss': train_loss}, force=True)
    self.seconds += time.perf_counter() - began

  def wait(self) -> None:
    """Returns when everything is on disk."""
    self._manager.wait_until_finished()

  def restore(self, step: int, template: Any, arrangement: Arrangement) -> tuple[Any, dict[str, Any]]:
    """Reads a checkpoint onto the devices of any arrangement of the same workers.

    Args:
      step: one of `steps()`.
      template: a state with the right shapes and types.
      arrangement: the workers and their devices.

    Returns:
      The state and what was stored about it.

    Raises:
      DataError: it cannot be read.
    """
    shapes = jax.tree.map(lambda x: np.zeros((arrangement.workers, *x.shape[2:]), x.dtype), template)
    args = ocp.args.Composite(state=ocp.args.StandardRestore(shapes), about=ocp.args.JsonRestore())
    try:
      stored = self._manager.restore(step, args=args)
    except Exception as error:  # whatever a damaged file makes Orbax, TensorStore or JSON raise
      reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
      raise DataError(f'checkpoint of step {step} cannot be read: {reason}') from error
    return arrangement.split(stored['state']), stored['about']

  def set_aside(self, step: int) -> pathlib.Path:
    """Renames a checkpoint that cannot be read, so that it is kept and its step can be saved again."""
    aside = self._folder.with_name(f'unreadable_checkpoint_{step}')
    (self._folder / str(step)).rename(aside)
    self._manager.reload()
    return aside


def restore_newest(
  checkpoints: Checkpoints, template: Any, arrangement: Arrangement
) -> tuple[int, Any, dict[str, Any]] | None:
  """The newest checkpoint that can be read, as (step, state, about); None if there is none at all.

  Raises:
    DataError: there are checkpoints and none of them can be read.
  """
  damaged = []
  for step in reversed(checkpoints.steps()):
    try:
      state, about = checkpoints.restore(step, template, arrangement)
    except DataError as error:
      damaged.append((step, error))
      continue
    for bad, error in damaged:
      print(f'{error}; going on from step {step}, it is kept as {checkpoints.set_aside(bad)}', file=sys.stderr)
    return step, state, about
  if damaged:
    raise DataError(f'{damaged[0][1]}; no other can be read either: remove the checkpoints folder to start anew')
  return None


def to_host(state: Any) -> Any:
  """Leaves [D, N/D, ...] as NumPy copies [N, ...]."""
  return jax.tree.map(lambda x: np.array(x).reshape(-1, *x.shape[2:]), state)
