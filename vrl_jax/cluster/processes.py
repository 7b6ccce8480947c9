"""The processes of a run: their identity, messages between them, and the report of an error to the others.

Arrays travel between devices by JAX's collectives. The messages here travel beside them, as JSON in the key-value
store of JAX's coordinator, which runs in process 0. Every process must call these functions in the same order. In a
run of one process they return at once.
"""

import contextlib
import functools
import itertools
import json
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from jax._src import distributed  # the key-value store has no public name

_P = ParamSpec('_P')
_R = TypeVar('_R')

_PREFIX = 'vrl_jax'
_NO_TIMEOUT = 10**9  # milliseconds: if a process dies, the heartbeat ends the others
_KEPT_MESSAGES = 1000  # processes are never this many messages apart: `collect` and the collectives synchronise them
_CHUNK = 1 << 20  # characters; gRPC limits a message to 4 MB
# Numbers the messages and flags alike in all processes. Module-level, like JAX's connection to the coordinator
# (`distributed.global_state`).
_message_numbers = itertools.count()


def count() -> int:
  """The number of processes.

  >>> count()  # without jax.distributed
  1
  """
  return distributed.global_state.num_processes if jax.distributed.is_initialized() else 1


def index() -> int:
  """The index of this process, from 0.

  >>> index()
  0
  """
  return distributed.global_state.process_id if jax.distributed.is_initialized() else 0


def is_main() -> bool:
  """Whether this is process 0, the one that writes files.

  >>> is_main()
  True
  """
  return index() == 0


def name() -> str:
  """The name of this process in messages.

  >>> name()
  'process 0 of 1'
  """
  return f'process {index()} of {count()}'


def from_main(compute: Callable[[], Any]) -> Any:
  """Calls `compute` in process 0 only and returns its result in all processes.

  Args:
    compute: returns a value that JSON can represent.

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
  """Returns the values of all processes, in the order of their indices; waits for all of them.

  Args:
    value: a value that JSON can represent.

  >>> collect('one process')
  ['one process']
  """
  if count() == 1:
    return [value]
  key = _next_key()
  _post(f'{key}/of/{index()}', value)
  return from_main(lambda: [_read(f'{key}/of/{process}') for process in range(count())])


def wait_for_all() -> None:
  """Returns when every process has called it.

  >>> wait_for_all()  # at once in a single process
  """
  collect(None)


class Flag:
  """A value that any process can set and process 0 can read, without waiting for the others.

  All processes create their flags in the same order.

  >>> flag = Flag()
  >>> flag.set(15)
  >>> flag.set(2)  # only the first value is kept
  >>> flag.get()
  15
  """

  def __init__(self) -> None:
    self._key = f'{_PREFIX}/flag/{next(_message_numbers)}'
    self._value: Any = None

  def set(self, value: Any) -> None:
    """Sets the flag, once, to a value that JSON can represent; None has no effect."""
    if value is not None and self._value is None:
      self._value = value
      if count() > 1:
        _client().key_value_set(f'{self._key}/{index()}', json.dumps(value))

  def get(self) -> Any:
    """In process 0, the value of the first process that has set one, or None."""
    if count() == 1:
      return self._value
    values = sorted(_client().key_value_dir_get(f'{self._key}/'))
    return json.loads(values[0][1]) if values else None


def report_end(message: str, status: int) -> None:
  """Tells the other processes that this one ends because of an error; see `listen`. Only the first report counts.

  >>> report_end('diverged', status=4)  # no other process
  """
  if count() > 1:
    with _coordinator_may_be_gone():
      _client().key_value_set(f'{_PREFIX}/end', json.dumps([index(), message, status]))


class Listener:
  """A thread that waits for another process to report its end; see `listen`.

  >>> Listener(None).stop()  # a single process needs no thread
  """

  def __init__(self, thread: threading.Thread | None):
    self._thread = thread

  def stop(self) -> None:
    """Ends the thread. All processes must call it."""
    if self._thread is None:
      return
    if is_main():
      with _coordinator_may_be_gone():
        _client().key_value_set(f'{_PREFIX}/end', json.dumps([None, '', 0]))
    self._thread.join()


def listen(on_end: Callable[[str, int], None]) -> Listener:
  """Starts a thread that waits for another process to report its end.

  Args:
    on_end: called in that thread with a message and the exit status of the other process.

  >>> listen(print).stop()  # no other process
  """
  if count() == 1:
    return Listener(None)

  def wait():
    with _coordinator_may_be_gone():
      process, message, status = json.loads(_client().blocking_key_value_get(f'{_PREFIX}/end', _NO_TIMEOUT))
      if process not in (None, index()):
        on_end(f'process {process} of {count()} has ended: {message}', status)

  thread = threading.Thread(target=wait, daemon=True, name='listen')
  thread.start()
  return Listener(thread)


def leave(timeout_seconds: float = 10.0) -> None:
  """Makes process 0 wait until all processes have called it: the others need the coordinator that runs there.

  >>> leave(timeout_seconds=1.0)  # at once in a single process
  """
  if count() == 1:
    return
  with _coordinator_may_be_gone():
    client, deadline = _client(), time.monotonic() + timeout_seconds
    client.key_value_set(f'{_PREFIX}/left/{index()}', '')
    while is_main() and time.monotonic() < deadline:
      if len(client.key_value_dir_get(f'{_PREFIX}/left/')) == count():
        break
      time.sleep(0.05)


def main_only(function: Callable[_P, _R]) -> Callable[_P, _R | None]:
  """Makes a function do nothing and return None in processes other than 0.

  >>> write = main_only(lambda text: f'wrote {text}')
  >>> write('summary.json')
  'wrote summary.json'
  """

  @functools.wraps(function)
  def in_main(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
    return function(*args, **kwargs) if is_main() else None

  return in_main


def _coordinator_may_be_gone():
  """Ignores errors: without the coordinator there is no process to notify."""
  return contextlib.suppress(Exception)


def _client():
  return distributed.global_state.client


def _next_key():
  number = next(_message_numbers)
  if is_main() and number >= _KEPT_MESSAGES:
    _client().key_value_delete(f'{_PREFIX}/{number - _KEPT_MESSAGES}')
  return f'{_PREFIX}/{number}'


def _post(key, value):
  text = json.dumps(value)
  parts = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
  for number, part in enumerate(parts[1:], 1):
    _client().key_value_set(f'{key}/part/{number}', part)
  _client().key_value_set(f'{key}/part/0', json.dumps([len(parts), parts[0]]))


def _read(key):
  number, text = json.loads(_client().blocking_key_value_get(f'{key}/part/0', _NO_TIMEOUT))
  more = [_client().blocking_key_value_get(f'{key}/part/{part}', _NO_TIMEOUT) for part in range(1, number)]
  return json.loads(''.join([text, *more]))
