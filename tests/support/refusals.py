"""Checks that launch.py refuses bad input."""

from support.launches import contents, one_line

from vrl_jax.cli.launch import main


def refused(argv, message, directory, capfd, status=2):
  """Runs launch.py, which must print one line with `message`, return `status` and leave `directory` unchanged."""
  before = contents(directory)
  capfd.readouterr()
  assert main(['launch.py', *argv]) == status
  line = one_line(capfd.readouterr().err)
  assert line.startswith('error: ')
  assert message in line, line
  assert contents(directory) == before
