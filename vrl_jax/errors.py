"""Mistakes of the user's, told in one line.

`launch.py` prints the message alone, with no traceback, and exits with `exit_status`; a notebook or a test sees an
ordinary exception. Say what is wrong, where, and what to do.
"""


class UserError(Exception):
  """A bad config, flag or argument.

  >>> from vrl_jax.config import default_config, validate
  >>> config = default_config()
  >>> config.update(period=5, steps=100, momentum=1.5)
  >>> validate(config)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: momentum=1.5, must be at least 0 and less than 1
  """

  exit_status = 2


class DataError(UserError):
  """A data file that is missing, corrupt or of the wrong form.

  >>> from vrl_jax.data.mnist import load_mnist
  >>> try:
  ...   load_mnist('/nowhere')
  ... except DataError as error:
  ...   print(str(error)[:20], error.exit_status)
  MNIST was not found: 3
  """

  exit_status = 3
