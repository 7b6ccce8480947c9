"""A trace of some steps of a run by JAX's profiler."""

import pathlib
import sys
from typing import Any

import jax

from vrl_jax.cluster import processes
from vrl_jax.errors import UserError

DIRECTORY = 'profile'


class StepProfiler:
  """Traces the dispatches with the steps from `first` to before `last`; process 0 writes the trace.

  A dispatch is not divided, except into rounds, so the trace covers the whole rounds that contain these steps.

  >>> profiler = StepProfiler((40, 60), pathlib.Path('runs'))
  >>> profiler.rounds(step=0, length=20), profiler.rounds(step=40, length=20)
  (2, 1)
  """

  def __init__(self, steps: tuple[int, ...], workdir: pathlib.Path):
    """`steps` is (first, last), or () for no trace; the trace is written below `workdir`."""
    self._first, self._last = steps or (sys.maxsize, sys.maxsize)
    self._directory = workdir / DIRECTORY
    self._running = False

  def require_in(self, steps: int) -> None:
    """Raises UserError if a run of that many steps ends before the trace would begin.

    >>> StepProfiler((40, 60), pathlib.Path('runs')).require_in(30)
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
      jax.profiler.start_trace(self._directory)
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
      jax.profiler.stop_trace()
      print(f'{self._directory}: the profile of steps {self._first} to {self._last}')

  def __enter__(self) -> 'StepProfiler':
    return self

  def __exit__(self, *exc: object) -> None:
    self.stop()
