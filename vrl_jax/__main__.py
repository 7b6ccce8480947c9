"""The command `vrl-jax`, the same as launch.py and `python -m vrl_jax`."""

import sys

from vrl_jax import __version__
from vrl_jax.errors import MissingExtra
from vrl_jax.system.signals import watched_stop_requests


def console() -> int:
  """Runs the command line of this process; returns the exit status."""
  if '--version' in sys.argv[1:]:
    print(f'vrl-jax {__version__}')
    return 0
  with watched_stop_requests() as stop:  # before JAX is imported, which takes a while
    try:
      import jax as jax
    except ValueError as error:  # JAX reads environment variables
      print(f'error: JAX cannot be imported ({error})', file=sys.stderr)
      return 2
    try:
      from vrl_jax.cli.launch import main
    except MissingExtra as error:
      print(f'error: {error}', file=sys.stderr)
      return error.exit_status
    return main(sys.argv, stop)


if __name__ == '__main__':
  sys.exit(console())
