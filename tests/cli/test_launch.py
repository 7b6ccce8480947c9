"""The command line, in this process."""

import re
import sys

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import CONFIG, ROOT, launch, lines, one_line, summary

import vrl_jax
from vrl_jax.__main__ import console
from vrl_jax.cli.flags import parse
from vrl_jax.cli.launch import main
from vrl_jax.config.fields import common_fields
from vrl_jax.config.files import config_names
from vrl_jax.data.partition import PARTITIONS
from vrl_jax.tasks.task import task_fields, task_names

# ml_collections loads config files with importlib's old loader.
SHORT = ('--config.steps=8', '--config.checkpoint_every=1', '--config.compilation_cache=False')


def argv(*flags, config=CONFIG):
  return ['launch.py', f'--config={config}', *flags]


def test_rerun_of_a_finished_run(tmp_path, capfd):
  assert main(argv(f'--workdir={tmp_path}', *SHORT)) == 0
  out, err = capfd.readouterr()
  assert err == ''
  assert f'workdir: {tmp_path}' in out
  assert 'step 8, train_loss' in out
  assert main(argv(f'--workdir={tmp_path}', *SHORT)) == 0
  out, err = capfd.readouterr()
  assert (f'{tmp_path}: already finished at step 8' in out, err) == (True, '')


def test_without_a_workdir_and_interrupted(tmp_path, monkeypatch, capfd):
  """The resume command names the dated run directory."""
  monkeypatch.chdir(tmp_path)
  with signal_at(monkeypatch, 5):
    assert main(argv(*SHORT)) == 143
  (folder,) = (tmp_path / 'runs').iterdir()
  assert folder.name.endswith('_quadratic')
  line = one_line(capfd.readouterr().err)
  assert line.startswith(f'runs/{folder.name}: stopped by SIGTERM; will resume from step 5 of 8; to resume: launch.py ')
  assert line.endswith(f' --workdir=runs/{folder.name}')
  assert main(line.split('to resume: ')[1].split()) == 0
  assert summary(folder)['resumed_from_step'] == 5


def test_launches_in_one_second_have_different_run_directories():
  assert len({parse(argv()).workdir for _ in range(4)}) == 4


def test_a_diverging_run(tmp_path, capfd):
  flags = (f'--workdir={tmp_path}', '--config.learning_rate=1e30', *SHORT)
  assert main(argv(*flags)) == 4
  assert 'vrl_sgd diverged by step' in one_line(capfd.readouterr().err)


def test_a_sweep_with_a_diverging_run(tmp_path, capfd):
  config = tmp_path / 'sweep.py'
  entries = "({'name': 'wild', 'learning_rate': 1e30}, {'name': 'tame'})"
  config.write_text(
    f'from tests.support.eight_quadratics import get_config as base\ndef get_config():\n  config = base()\n'
    f'  config.sweep = {entries}\n  return config\n'
  )
  assert main(argv(f'--workdir={tmp_path / "runs"}', *SHORT, config=config)) == 4
  assert '1 of the runs diverged: wild' in one_line(capfd.readouterr().err)
  assert lines(tmp_path / 'runs' / 'tame')[-1]['step'] == 8


def test_a_sweep_that_may_diverge_succeeds(tmp_path, capfd):
  flags = ('--config.may_diverge=True', "--config.sweep=({'name': 'wild', 'learning_rate': 1e30},)")
  assert main(argv(f'--workdir={tmp_path}', *SHORT, *flags)) == 0
  assert '1 of the runs diverged: wild' in capfd.readouterr().out


def test_help_lists_every_field(capsys):
  assert main(['launch.py', '--help']) == 0
  shown = capsys.readouterr().out
  assert '[--config.FIELD=VALUE …]' in shown
  for field in (*common_fields(), *task_fields('quadratic'), *task_fields('lenet_mnist')):
    (line,) = re.findall(rf'^  --config\.{field.name}=(.*)$', shown, re.MULTILINE)
    assert line.startswith('' if field.default is None else str(field.default)), field.name
    assert field.help.split()[0] in shown
  assert 's_sgd, local_sgd, easgd, vrl_sgd' in shown


def test_help_shows_a_configs_values(capsys):
  assert main(argv('--config.period=7', '--help')) == 0
  shown = capsys.readouterr().out
  assert '--config.period=7 ' in shown
  assert '--config.dimension=5 ' in shown
  assert 'task=lenet_mnist' not in shown


def test_list_describes_what_a_config_can_name(capsys):
  assert main(['launch.py', '--list']) == 0
  shown = capsys.readouterr().out
  described = dict(re.findall(r'^  (\S+) +(\S.*)$', shown, re.MULTILINE))
  names = {*config_names(), *task_names(), *vrl_jax.ALGORITHMS, *PARTITIONS}
  assert names <= set(described) and all(len(described[name]) > 15 for name in names)
  assert 'Optimizers, --config.optimizer:\n  sgd, adamw, or a dotted path such as optax.lion' in shown
  assert max(map(len, shown.splitlines())) <= 120


@pytest.mark.parametrize('command', ['--version', '--config=quadratic --version'])
def test_version_without_importing_jax(command, monkeypatch, capsys):
  monkeypatch.setattr(sys, 'argv', ['launch.py', *command.split()])
  monkeypatch.setitem(sys.modules, 'vrl_jax.cli.launch', None)  # which would import it
  assert console() == 0
  assert capsys.readouterr().out == f'vrl-jax {vrl_jax.__version__}\n'


def test_flags_in_any_order_and_form(tmp_path):
  arguments = parse(
    ['launch.py', '--config.period', '7', '--workdir', str(tmp_path), f'--config={CONFIG}', '--noconfig.nesterov']
  )
  assert (arguments.config.period, arguments.config.nesterov, arguments.workdir) == (7, False, tmp_path)


def test_a_home_directory_is_expanded(monkeypatch, tmp_path, capsys):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert parse(argv('--workdir=~/runs/a')).workdir == tmp_path / 'runs' / 'a'
  assert main(argv('--workdir=~nosuchuser/runs')) == 2
  assert "--workdir='~nosuchuser/runs'" in one_line(capsys.readouterr().err)


def test_as_a_process_it_is_quiet(tmp_path):
  """No word of Orbax, absl or JAX; no progress bar where there is no terminal."""
  status, out, err = launch(tmp_path / 'run', *SHORT)
  assert (status, err) == (0, '')
  # On a busy machine there are also lines of progress: step 1 of 8 (12 %), 7 s.
  assert len([line for line in out.splitlines() if not re.match(r'step \d+ of', line)]) == 3
  assert 'orbax' not in out.lower()


def test_launch_py_is_small():
  assert len((ROOT / 'launch.py').read_text().splitlines()) <= 70
