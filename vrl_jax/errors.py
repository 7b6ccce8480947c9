"""Mistakes of the user's, told in one line.

`launch.py` prints the message alone, with no traceback, and exits with `exit_status`; a notebook or a test sees an
ordinary exception. Say what is wrong, where, and what to do.
"""


class UserError(Exception):
  """A bad config, flag or argument."""

  exit_status = 2


class DataError(UserError):
  """A data file that is missing, corrupt or of the wrong form."""

  exit_status = 3
