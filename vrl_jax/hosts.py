"""Several processes as one run: who they are, what they agree on, and how one tells the others that it has to end.

The numbers travel by JAX's collectives, between devices; what is here travels beside them, through the key-value store
of JAX's coordinator, which process 0 runs. Every process calls these functions in the same order. In a run of one
process they return at once and nothing of this is used.
"""

import contextlib
import functools
import itertools
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
from jax._src import distributed  # the key-value store has no public name

_PREFIX = 'vrl_jax'
_FOR_EVER = 10**9  # milliseconds: if a process dies, the heartbeat ends the others
_KEPT = 1000  # messages; nobody is so far behind, as `collect` and the collectives make all wait
_CHUNK = 1 << 20  # gRPC carries 4 MB at a time
_numbers, _flags = itertools.count(), itertools.count()
_listening = None  # the thread of `listen`


def count() -> int:
  """The number of processes.

  >>> count()  # JAX was not told of others
  1
  """
  return distributed.global_state.num_processes if jax.distributed.is_initialized() else 1


def index() -> int:
  """Which of them this is.

  >>> index()
  0
  """
  return distributed.global_state.process_id if jax.distributed.is_initialized() else 0


def is_main() -> bool:
  """Whether this is process 0, the one that writes.

  >>> is_main()
  True
  """
  return index() == 0


def name() -> str:
  """What to call this process.

  >>> name()
  'process 0 of 1'
  """
  return f'process {index()} of {count()}'


def from_main(compute: Callable[[], Any]) -> Any:
  """What `compute` returns in process 0, given to all; the others do not call it.

  Args:
    compute: returns something that JSON can hold.

  >>> from_main(lambda: {'workdir': 'runs/a'})
  {'workdir': 'runs/a'}
  """
  if count() == 1:
    return compute()
  key = _next_key()
  if is_main():
    _post(key, compute())
  return _read(key)


def collect(value: Any) -> list[Any]:
  """The values of all processes, in their order; waits for all of them.

  Args:
    value: something that JSON can hold.

  >>> collect('one process')
  ['one process']
  """
  if count() == 1:
    return [value]
  key = _next_key()
  _post(f'{key}/of/{index()}', value)
  return from_main(lambda: [_read(f'{key}/of/{process}') for process in range(count())])


def wait_for_all() -> None:
  """Returns when every process has come here.

  >>> wait_for_all()  # there is nobody else
  """
  collect(None)


class Flag:
  """A value that any process may raise and process 0 sees, without waiting for anybody.

  All processes make their flags in the same order.

  >>> flag = Flag()
  >>> flag.raise_to(15)
  >>> flag.raise_to(2)  # the first counts
  >>> flag.seen()
  15
  """

  def __init__(self):
    self._key = f'{_PREFIX}/flag/{next(_flags)}'
    self._raised = None

  def raise_to(self, value: Any) -> None:
    """Raises the flag, once, to a value that JSON can hold; None leaves it down."""
    if value is not None and self._raised is None:
      self._raised = value
      if count() > 1:
        _client().key_value_set(f'{self._key}/{index()}', json.dumps(value))

  def seen(self) -> Any:
    """The value of the first process that has one, or None; for process 0."""
    if count() == 1:
      return self._raised
    values = sorted(_client().key_value_dir_get(f'{self._key}/'))
    return json.loads(values[0][1]) if values else None


def of_all(error: BaseException) -> BaseException:
  """Marks an error that all processes raise at the same point, when all have come there; the end of none is news then.

  >>> of_all(ValueError('the same everywhere')).of_all
  True
  """
  wait_for_all()
  error.of_all = True
  return error


def tell_end(message: str, status: int) -> None:
  """Tells the others that this process ends in trouble (`listen` hears it there); the first to tell is heard.

  >>> tell_end('diverged', status=4)  # nobody else to tell
  """
  if count() > 1:
    with _suppressed():
      _client().key_value_set(f'{_PREFIX}/end', json.dumps([index(), message, status]))


def listen(heard: Callable[[str, int], None]) -> None:
  """Starts to listen for the end of another process.

  Args:
    heard: gets what it told and its status, in a thread of its own.
  """

  def wait():
    with _suppressed():
      process, message, status = json.loads(_client().blocking_key_value_get(f'{_PREFIX}/end', _FOR_EVER))
      if process not in (None, index()):
        heard(f'process {process} of {count()} has ended: {message}', status)

  global _listening
  _listening = threading.Thread(target=wait, daemon=True, name='listen')
  _listening.start()


def stop_listening() -> None:
  """Ends `listen`; all processes do it."""
  if is_main():
    with _suppressed():
      _client().key_value_set(f'{_PREFIX}/end', json.dumps([None, '', 0]))
  if _listening is not None:
    _listening.join()


def leave(seconds: float = 10.0) -> None:
  """Waits, so long at most, until all have come here: when process 0 ends, the coordinator does, and all who need it.

  >>> leave(seconds=1.0)  # at once, alone
  """
  if count() == 1:
    return
  with _suppressed():
    client, deadline = _client(), time.monotonic() + seconds
    client.key_value_set(f'{_PREFIX}/left/{index()}', '')
    while is_main() and time.monotonic() < deadline:
      if len(client.key_value_dir_get(f'{_PREFIX}/left/')) == count():
        break
      time.sleep(0.05)


def main_only(method: Callable) -> Callable:
  """Makes a function do nothing but in process 0.

  >>> write = main_only(lambda text: f'wrote {text}')
  >>> write('summary.json')
  'wrote summary.json'
  """

  @functools.wraps(method)
  def in_main(*args, **kwargs):
    return method(*args, **kwargs) if is_main() else None

  return in_main


def _suppressed():
  """The coordinator may be gone already: then there is nobody to tell."""
  return contextlib.suppress(Exception)


def _client():
  return distributed.global_state.client


def _next_key():
  number = next(_numbers)
  if is_main() and number >= _KEPT:
    _client().key_value_delete(f'{_PREFIX}/{number - _KEPT}')
  return f'{_PREFIX}/{number}'


def _post(key, value):
  text = json.dumps(value)
  parts = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
  for number, part in enumerate(parts[1:], 1):
    _client().key_value_set(f'{key}/part/{number}', part)
  _client().key_value_set(f'{key}/part/0', json.dumps([len(parts), parts[0]]))


def _read(key):
  number, text = json.loads(_client().blocking_key_value_get(f'{key}/part/0', _FOR_EVER))
  more = [_client().blocking_key_value_get(f'{key}/part/{part}', _FOR_EVER) for part in range(1, number)]
  return json.loads(''.join([text, *more]))
