"""What a bad input must end in."""

from launches import contents, one_line

from vrl_jax.launching import main


def refused(argv, told, folder, capfd, status=2):
  """Runs launch.py: it must end with `status` and one line, and leave `folder` as it was."""
  before = contents(folder)
  capfd.readouterr()
  assert main(['launch.py', *argv]) == status
  line = one_line(capfd.readouterr().err)
  assert line.startswith('error: ')
  assert told in line, line
  assert contents(folder) == before
