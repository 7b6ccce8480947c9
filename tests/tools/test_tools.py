"""The command lines of the tools."""

import importlib
import pathlib
import subprocess
import sys

import pytest

from vrl_jax import tools
from vrl_jax.errors import DataError
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
    (
      period,
      ['--workers=8', '--steps=1e300'],
      "argument --steps: '1e300', must be an integer of at least 1 and less than 1e+18",
    ),
    (cost, ['--flops=1e-300'], "argument --flops: '1e-300', must be between 1e-100 and 1e+100"),
    (
      checkpoint_tool,
      ['~nosuchuser/run'],
      "argument workdir: path='~nosuchuser/run': unknown home directory; use an absolute path",
    ),
    (period, ['--workers=8'], 'the following arguments are required: --steps'),
  ],
)
def test_command_line_errors_are_one_line(tool, flags, message, capsys):
  with pytest.raises(SystemExit, match='2'):
    tool.main(flags)
  name = tool.__name__.rpartition('.')[2]
  assert capsys.readouterr().err == f'error: {message} (see python -m vrl_jax.tools.{name} --help)\n'


@pytest.mark.parametrize(
  ('error', 'status', 'line'),
  [
    (DataError('no\nsuch file'), 3, 'error: no such file\n'),
    (OSError(28, 'No space left on device', 'out.npz'), 5, "error: [Errno 28] No space left on device: 'out.npz'\n"),
    (KeyboardInterrupt(), 130, 'interrupted\n'),
  ],
)
def test_errors_of_a_tool_are_one_line(error, status, line, monkeypatch, capsys):
  def fail(*args):
    raise error

  monkeypatch.setattr(cost, 'table', fail)
  assert cost.main([]) == status
  assert capsys.readouterr().err == line


@pytest.mark.parametrize('name', NAMES)
def test_every_tool_reports_errors_in_one_line(name):
  assert hasattr(importlib.import_module(f'vrl_jax.tools.{name}').main, '__wrapped__')


def test_communication_without_a_config(capsys):
  assert communication.main([]) == 2
  assert capsys.readouterr().err.count('\n') == 1


@pytest.mark.parametrize(
  ('integer', 'number'), [('1', '1.1e-100'), ('9e17', '1.1e-100'), ('1', '9e99'), ('9e17', '9e99')]
)
def test_formulas_do_not_overflow(integer, number, capsys):
  names = 'workers', 'parameters', 'steps', 'bandwidth', 'latency', 'batch', 'flops', 'period', 'fragments', 'delay'
  integers = {'workers', 'steps', 'batch', 'period', 'fragments', 'delay'}
  small = [f'--{name}={integer if name in integers else number}' for name in names]
  for swapped in names:  # quotients of a large and a small number
    other = '9e17' if swapped in integers and integer == '1' else '1' if swapped in integers else '9e99'
    assert cost.main([*small, f'--{swapped}={other}']) == 0
  for noise in ('1.1e-100', number):
    assert period.main([f'--steps={integer}', '--workers=9e17', f'--smoothness={number}', f'--noise={noise}']) == 0


def test_a_home_directory_is_expanded(monkeypatch, tmp_path, capsys):
  """Shells do not expand it in `--workdir=~/run`."""
  monkeypatch.setenv('HOME', str(tmp_path))
  assert checkpoint_tool.main(['~/run']) == 3
  assert capsys.readouterr().err.startswith(f'error: {tmp_path}/run/checkpoints: no checkpoints')
