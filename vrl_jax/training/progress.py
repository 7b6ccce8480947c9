"""Progress of a run: a bar on a terminal, occasional lines in a log file."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from tqdm import tqdm

_SHARE = 0.1  # of all steps, at least, between two lines
_SECONDS = 5.0  # at least, between two lines
_LONG_SECONDS = 600.0  # after so long there is a line even if less than _SHARE was done


class Progress:
  """Counts steps and prints plain lines: up to ten in a run of a minute, none in one of seconds, more in one of hours.

  >>> seconds = iter(range(0, 1000, 4))
  >>> progress = Progress(total=1200, initial=0, clock=lambda: next(seconds))
  >>> for _ in range(5):
  ...   progress.note('loss 0.25')
  ...   progress.update(100)
  step 200 of 1,200 (17 %), 8 s: loss 0.25
  step 400 of 1,200 (33 %), 16 s: loss 0.25
  """

  def __init__(self, *, total: int, initial: int, label: str = '', clock: Callable[[], float] = time.monotonic):
    """Starts to count at `initial`."""
    self._total = total
    self._prefix = f'{label}, ' if label else ''
    self._clock = clock
    self._text = ''
    self._done = self._shown = initial
    self._began = self._shown_at = clock()

  def update(self, steps: int) -> None:
    """Adds steps that are done."""
    self._done += steps
    now = self._clock()
    elapsed = now - self._shown_at
    due = elapsed >= _SECONDS and self._done - self._shown >= _SHARE * self._total
    if self._done < self._total and (due or elapsed >= _LONG_SECONDS):
      self._shown, self._shown_at = self._done, now
      share = f'{100 * self._done / self._total:.0f} %'
      text = f': {self._text}' if self._text else ''
      print(
        f'{self._prefix}step {self._done:,} of {self._total:,} ({share}), {now - self._began:.0f} s{text}', flush=True
      )

  def note(self, text: str) -> None:
    """Sets the text behind the count, such as the last loss."""
    self._text = text


class _Bar(Progress):
  def __init__(self, bar):
    self._bar = bar

  def update(self, steps):
    self._bar.update(steps)

  def note(self, text):
    self._bar.set_postfix_str(text, refresh=False)


@contextlib.contextmanager
def show_progress(*, total: int, initial: int = 0, label: str = '') -> Iterator[Progress]:
  """Yields a counter of steps, which is a bar on a terminal and plain lines elsewhere.

  Args:
    total: the number of steps.
    initial: the number of steps done before.
    label: what the steps are for, if not for the run.

  >>> with show_progress(total=100) as progress:  # doctest's stdout is no terminal
  ...   progress.update(100)
  """
  if not sys.stdout.isatty():
    yield Progress(total=total, initial=initial, label=label)
    return
  with tqdm(total=total, initial=initial, desc=label or None, unit='step', leave=False) as bar:
    yield _Bar(bar)
