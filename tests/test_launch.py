"""The command line, in this process."""

import pytest
from inprocess import compiled_once as compiled_once
from inprocess import signal_at
from launches import CONFIG, ROOT, launch, lines, one_line, summary

from vrl_jax.launching import main

# ml_collections loads config files with importlib's old loader.
SHORT = ('--config.steps=8', '--config.checkpoint_every=1', '--config.compilation_cache=False')


def argv(*flags, config=CONFIG):
  return ['launch.py', f'--config={config}', *flags]


def test_a_run_and_the_same_again(tmp_path, capfd):
  assert main(argv(f'--workdir={tmp_path}', *SHORT)) == 0
  out, err = capfd.readouterr()
  assert err == ''
  assert f'workdir: {tmp_path}' in out
  assert 'step 8, train_loss' in out
  assert main(argv(f'--workdir={tmp_path}', *SHORT)) == 0
  out, err = capfd.readouterr()
  assert (f'{tmp_path}: finished already, at step 8' in out, err) == (True, '')


def test_without_a_workdir_and_interrupted(tmp_path, monkeypatch, capfd):
  """The line that says how to go on names the dated folder."""
  monkeypatch.chdir(tmp_path)
  with signal_at(monkeypatch, 5):
    assert main(argv(*SHORT)) == 143
  (folder,) = (tmp_path / 'runs').iterdir()
  assert folder.name.endswith('_quadratic')
  line = one_line(capfd.readouterr().err)
  assert line.startswith(f'runs/{folder.name}: stopped by SIGTERM; it goes on from step 5 of 8; to go on: launch.py ')
  assert line.endswith(f' --workdir=runs/{folder.name}')
  assert main(line.split('to go on: ')[1].split()) == 0
  assert summary(folder)['resumed_from_step'] == 5


def test_a_diverging_run(tmp_path, capfd):
  flags = (f'--workdir={tmp_path}', '--config.learning_rate=1e30', *SHORT)
  assert main(argv(*flags)) == 4
  assert 'vrl_sgd diverged by step' in one_line(capfd.readouterr().err)


def test_a_sweep_with_a_diverging_run(tmp_path, capfd):
  config = tmp_path / 'sweep.py'
  entries = "({'name': 'wild', 'learning_rate': 1e30}, {'name': 'tame'})"
  config.write_text(
    f'from tests.eight_quadratics import get_config as base\ndef get_config():\n  config = base()\n'
    f'  config.sweep = {entries}\n  return config\n'
  )
  assert main(argv(f'--workdir={tmp_path / "runs"}', *SHORT, config=config)) == 4
  assert '1 of the runs diverged: wild' in one_line(capfd.readouterr().err)
  assert lines(tmp_path / 'runs' / 'tame')[-1]['step'] == 8


def test_help(capsys):
  with pytest.raises(SystemExit) as caught:
    main(['launch.py', '--help'])
  assert caught.value.code == 0
  assert '[--config.FIELD=VALUE …]' in capsys.readouterr().out


def test_as_a_process_it_is_quiet(tmp_path):
  """No word of Orbax, absl or JAX; no progress bar where there is no terminal."""
  status, out, err = launch(tmp_path / 'run', *SHORT)
  assert (status, err) == (0, '')
  assert len(out.splitlines()) == 3
  assert 'orbax' not in out.lower()


def test_launch_py_is_small():
  assert len((ROOT / 'launch.py').read_text().splitlines()) <= 70
