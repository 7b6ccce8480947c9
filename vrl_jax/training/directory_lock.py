"""The lock of a run or sweep directory, which a process holds and verifies before it writes."""

import contextlib
import fcntl
import os
import pathlib
import types
from typing import IO, Self

from vrl_jax.errors import StorageError, UserError

_ATTEMPTS = 100  # one more for each launch that fails, and removes the directory, in between


class DirectoryLock:
  """An exclusive lock of a directory, held until `release` or the end of the process.

  The directory itself is locked, so that nobody else can lock it even if its file `.lock` is removed, and that file,
  because network file systems may not lock directories. The system keeps these locks if the directory is moved or
  removed; then another process can lock a new directory at the same path, and only `require` notices.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name, DirectoryLock.acquire(pathlib.Path(name)) as lock:
  ...   lock.require()
  ...   pathlib.Path(name, '.lock').unlink()
  ...   for check in (lambda: DirectoryLock.acquire(pathlib.Path(name)), lock.require):
  ...     try:
  ...       check()
  ...     except UserError as error:
  ...       print(str(error).removeprefix(name), error.exit_status)
  : another process is running in this directory; wait for it or stop it 2
  : its .lock was removed during this run; rerun the same command to resume, if no other run uses the directory 5
  """

  def __init__(self, path: pathlib.Path, folder: int, file: IO[str]):
    """Use `acquire`."""
    self._path = path
    self._folder = folder
    self._file = file

  @classmethod
  def acquire(cls, path: pathlib.Path) -> Self:
    """Creates a directory, if there is none, and locks it.

    Raises:
      UserError: another process holds the lock, or the directory cannot be written.
    """
    try:
      for _ in range(_ATTEMPTS):
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
          folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
          stack.callback(os.close, folder)
          _lock_folder(folder)
          file = stack.enter_context(open(path / '.lock', 'a+'))
          fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
          lock = cls(path, folder, file)
          if lock._loss() is None:  # otherwise a launch that failed has just removed it
            stack.pop_all()
            return lock
      raise UserError(f'{path}: its lock cannot be verified; choose another --workdir')
    except BlockingIOError as error:
      raise UserError(f'{path}: another process is running in this directory; wait for it or stop it') from error
    except OSError as error:
      raise UserError(f'{path}: cannot be written ({error.strerror}); choose another --workdir') from error

  @property
  def locked_path(self) -> pathlib.Path:
    """A path of the locked directory itself, wherever it is moved; where the system has none, the original path.

    For writes that can take long, such as those of checkpoints: they must neither create a removed directory again nor
    end up in one that has taken its place.
    """
    path = pathlib.Path('/proc/self/fd', str(self._folder))
    return path if path.is_dir() else self._path

  def require(self) -> None:
    """Raises StorageError unless the locked directory is still at its path, with its lock file."""
    if loss := self._loss():
      raise StorageError(f'{self._path}: {loss}')

  def _loss(self):
    try:
      if not os.path.samestat(os.fstat(self._folder), os.stat(self._path)):
        return 'another file or directory took its place during this run, which has ended and left that alone'
    except (FileNotFoundError, NotADirectoryError):
      return 'the directory was removed or moved during this run; move it back and rerun the same command to resume'
    except OSError as error:
      return f'can no longer be read ({error.strerror}); rerun the same command to resume'
    with contextlib.suppress(OSError):
      if os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path / '.lock')):
        return None
    return 'its .lock was removed during this run; rerun the same command to resume, if no other run uses the directory'

  def release(self) -> None:
    """Ends the lock; the file stays."""
    self._file.close()
    os.close(self._folder)

  def __enter__(self) -> Self:
    return self

  def __exit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
  ) -> None:
    self.release()


def _lock_folder(folder):
  try:
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise
  except OSError:  # a network file system may lock only files that are open for writing
    pass
