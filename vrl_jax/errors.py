"""User errors, reported in one line.

`launch.py` prints the message without a traceback and exits with `exit_status`; notebooks and tests see an ordinary
exception. A message says what is wrong, where, and what to do.
"""

import importlib.util


class UserError(Exception):
  """A bad config, flag or argument.

  Attributes:
    exit_status: the exit status of launch.py.
    everywhere: whether every process of the run raises this error; if not, it is reported to the others.

  >>> from vrl_jax.config.fields import default_config, validate
  >>> config = default_config()
  >>> config.update(period=5, steps=100, momentum=1.5)
  >>> validate(config)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: momentum=1.5, must be less than 1
  """

  exit_status = 2

  def __init__(self, message: str, *, everywhere: bool = False):
    super().__init__(message)
    self.everywhere = everywhere


class MissingExtra(UserError, ModuleNotFoundError):
  """An extra of the package is not installed; see `require_extra`.

  >>> try:
  ...   raise MissingExtra("vrl_jax.report needs matplotlib: pip install 'vrl-jax[train]'", name='vrl_jax.report')
  ... except ImportError as error:
  ...   error.name
  'vrl_jax.report'
  """

  def __init__(self, message: str, *, name: str):
    super().__init__(message)
    self.name = name


def require_extra(extra: str, user: str, *modules: str) -> None:
  """Raises MissingExtra if a module is not installed.

  A package of VRL-JAX whose modules import optional dependencies calls it in its `__init__`. The error has the name of that
  package, so `python -m` also prints one line.

  Args:
    extra: the extra in pyproject.toml that installs the modules.
    user: the package or function that needs them, such as `__name__`.
    *modules: top-level modules; they are not imported.

  >>> require_extra('train', 'vrl_jax.training', 'flax', 'ml_collections')
  >>> require_extra('train', 'vrl_jax.training', 'flax', 'wax', 'max')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.MissingExtra: vrl_jax.training needs wax, max: pip install 'vrl-jax[train]'
  """
  missing = [module for module in modules if importlib.util.find_spec(module) is None]
  if missing:
    raise MissingExtra(f"{user} needs {', '.join(missing)}: pip install 'vrl-jax[{extra}]'", name=user)


class DataError(UserError):
  """A data file that is missing, corrupt or in the wrong format.

  >>> from vrl_jax.data.sources.mnist import load_mnist
  >>> try:
  ...   load_mnist('/nowhere')
  ... except DataError as error:
  ...   print(str(error)[:20], error.exit_status)
  MNIST was not found: 3
  """

  exit_status = 3


class DataNotFound(DataError):
  """A data set that is missing, as opposed to damaged.

  >>> try:
  ...   raise DataNotFound('MNIST was not found')
  ... except DataError as error:
  ...   print(f'{error}, so it may be downloaded')
  MNIST was not found, so it may be downloaded
  """


class ForeignCheckpoint(DataError):
  """A checkpoint that was written with another config or by another version of the code.

  >>> error = ForeignCheckpoint('runs/a: the checkpoint of step 40 is from another run: period=5 there and 10 now')
  >>> isinstance(error, DataError), error.exit_status
  (True, 3)
  """


class Diverged(UserError):
  """The loss or the parameters are no longer finite.

  >>> Diverged('runs/a: the loss is not finite from step 40 on').exit_status
  4
  """

  exit_status = 4


class StorageError(UserError):
  """The run directory can no longer be written.

  >>> StorageError('runs/a: cannot be written (No space left on device)').exit_status
  5
  """

  exit_status = 5


class LostContact(UserError):
  """Another process of the run has died or can no longer be reached.

  >>> LostContact('lost contact to process 1').exit_status
  6
  """

  exit_status = 6


class Interrupted(KeyboardInterrupt):
  """The run was stopped by a signal; the same call resumes it.

  Not an `Exception`, so that `except Exception` around a damaged file does not catch it.

  Attributes:
    signum: the signal.
    exit_status: the exit status of launch.py, 128 + `signum`.
    everywhere: as in `UserError`.

  >>> import signal
  >>> Interrupted('stopped by SIGTERM', signal.SIGTERM).exit_status
  143
  """

  def __init__(self, message: str, signum: int, *, everywhere: bool = False):
    super().__init__(message)
    self.signum = signum
    self.exit_status = 128 + signum
    self.everywhere = everywhere
