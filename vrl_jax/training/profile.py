"""A trace of some steps of a run by JAX's profiler."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import jax

from vrl_jax.cluster import processes
from vrl_jax.errors import StorageError, UserError
from vrl_jax.training.orbax_errors import cause
from vrl_jax.training.run_directory import RunDirectory

DIRECTORY = 'profile'


class StepProfiler:
  """Traces the dispatches with the steps from `first` to before `last`; process 0 writes the trace.

  A dispatch is not divided, except into rounds, so the trace covers the whole rounds that contain these steps.

  >>> import pathlib
  >>> profiler = StepProfiler((40, 60), RunDirectory(pathlib.Path('runs'), {}, summary=None, lock=None))
  >>> profiler.rounds(step=0, length=20), profiler.rounds(step=40, length=20)
  (2, 1)
  """

  def __init__(self, steps: tuple[int, ...], directory: RunDirectory):
    """`steps` is (first, last), or () for no trace; the trace is written below the run directory."""
    self._first, self._last = steps or (sys.maxsize, sys.maxsize)
    self._directory = directory
    self._running = False

  def require_in(self, steps: int) -> None:
    """Raises UserError if a run of that many steps ends before the trace would begin.

    >>> import pathlib
    >>> StepProfiler((40, 60), RunDirectory(pathlib.Path('runs'), {}, summary=None, lock=None)).require_in(30)
    Traceback (most recent call last):
      ...
    vrl_jax.errors.UserError: profile_steps=(40, 60): the run has 30 steps, numbered from 0
    """
    if steps <= self._first < sys.maxsize:
      raise UserError(f'profile_steps={self._first, self._last}: the run has {steps} steps, numbered from 0')

  def rounds(self, step: int, length: int) -> int:
    """The largest number of rounds of `length` steps that can be dispatched at `step` without passing a boundary."""
    boundary = self._first if step < self._first else self._last if step < self._last else sys.maxsize
    return max(1, -(-(boundary - step) // length))

  def before(self, step: int, steps: int, state: Any) -> None:
    """Called before a dispatch of `steps` steps: starts the trace if one of them is to be in it."""
    if not self._running and step < self._last and step + steps > self._first and processes.is_main():
      jax.block_until_ready(state)  # what was dispatched before is not in the trace
      with self._writing():
        jax.profiler.start_trace(self._directory.locked_path / DIRECTORY)
        self._running = True

  def after(self, step: int, state: Any) -> None:
    """Called when `step` steps have been dispatched: ends the trace if the last of them is in it."""
    if self._running and step >= self._last:
      jax.block_until_ready(state)
      self.stop()

  def stop(self) -> None:
    """Writes the trace, if one has been started."""
    if self._running:
      self._running = False
      with self._writing():
        jax.profiler.stop_trace()
      print(f'{self._directory.path / DIRECTORY}: the profile of steps {self._first} to {self._last}')

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    with self._directory.locked():
      try:
        yield
      except (OSError, RuntimeError) as error:
        reason = cause(error).rpartition('; ')[2]  # without the path
        raise StorageError(f'{self._directory.path / DIRECTORY}: the profile cannot be written ({reason})') from error

  def __enter__(self) -> 'StepProfiler':
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    with (
      contextlib.suppress(StorageError) if kind else contextlib.nullcontext()
    ):  # the first error is the one to report
      self.stop()
