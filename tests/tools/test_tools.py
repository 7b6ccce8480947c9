"""The command lines of the tools."""

import pathlib
import subprocess
import sys

import pytest

from vrl_jax import tools
from vrl_jax.tools import checkpoint as checkpoint_tool
from vrl_jax.tools import communication, cost, local_hosts, period

NAMES = sorted(path.stem for path in pathlib.Path(tools.__file__).parent.glob('[!_]*.py') if path.stem != 'arguments')

HELP = """
import importlib, sys
for name in sys.argv[1:]:
  try:
    importlib.import_module(name).main(['--help'])
  except SystemExit as end:
    if end.code:  # -OO removes assertions
      raise
from vrl_jax.cli.launch import main
sys.exit(main(['launch.py', '--help']))
"""


def test_help_without_docstrings():
  """PYTHONOPTIMIZE=2 removes the docstrings."""
  modules = [*(f'vrl_jax.tools.{name}' for name in NAMES), 'vrl_jax.report.__main__']
  done = subprocess.run([sys.executable, '-OO', '-c', HELP, *modules], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  commands, _, launch = done.stdout.partition('usage: launch.py')
  assert commands.count('usage: ') == len(modules) and 'None' not in commands
  assert '--config.period' in launch


@pytest.mark.parametrize(
  ('tool', 'flags', 'message'),
  [
    (checkpoint_tool, [], 'the following arguments are required: workdir'),
    (cost, ['--latency=-1'], "argument --latency: '-1', must be a number of at least 0"),
    (local_hosts, ['--workdir=runs/a', '--processes=0'], "argument --processes: '0', must be an integer of at least 1"),
    (period, ['--workers=8'], 'the following arguments are required: --steps'),
  ],
)
def test_command_line_errors_are_one_line(tool, flags, message, capsys):
  with pytest.raises(SystemExit, match='2'):
    tool.main(flags)
  name = tool.__name__.rpartition('.')[2]
  assert capsys.readouterr().err == f'error: {message} (see python -m vrl_jax.tools.{name} --help)\n'


def test_communication_without_a_config(capsys):
  assert communication.main([]) == 2
  assert capsys.readouterr().err.count('\n') == 1
