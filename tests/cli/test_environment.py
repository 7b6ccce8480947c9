"""Environments that are broken or unusual: the run works, or launch.py says in one line what is wrong."""

import os
import pwd
import subprocess
import sys

import jax
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.launches import CACHE, CONFIG, ROOT, TIMEOUT, command, lines, one_line
from support.refusals import refused

SHORT = ('--config.steps=8', '--config.log_every_step=False')


def process(workdir, *flags, redirect='', **environment):
  """Runs launch.py in a shell, which can close its streams."""
  environment = os.environ | {'VRL_JAX_CACHE': str(CACHE)} | environment
  argv = ['sh', '-c', f'exec "$@" {redirect}', 'sh', *command(workdir, *flags)]
  return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.mark.parametrize('name', ['VRL_JAX_CACHE', 'XDG_CACHE_HOME'])
def test_an_unknown_home_in_the_cache_directory(name, monkeypatch, tmp_path, capfd):
  monkeypatch.delenv('VRL_JAX_CACHE', raising=False)
  monkeypatch.setenv(name, '~nosuchuser/cache')
  message = f"{name}='~nosuchuser/cache': unknown home directory; use an absolute path"
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/run', *SHORT], message, tmp_path, capfd)


def test_no_home_directory(monkeypatch, tmp_path, capfd):
  for name in ('HOME', 'VRL_JAX_CACHE', 'XDG_CACHE_HOME'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(pwd, 'getpwuid', lambda uid: {}[uid])
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/run', *SHORT], "XDG_CACHE_HOME='~/.cache'", tmp_path, capfd)


@pytest.mark.parametrize('name', ['data_dir', 'TFDS_DATA_DIR'])
def test_an_unknown_home_in_the_data_directory(name, monkeypatch, tmp_path, capfd):
  flags = ['--config=lenet_mnist', f'--workdir={tmp_path}/run', '--config.compilation_cache=False']
  if name == 'data_dir':
    flags.append('--config.data_dir=~nosuchuser/data')
  else:
    monkeypatch.setenv(name, '~nosuchuser/data')
  message = f"{name}='~nosuchuser/data': unknown home directory; use an absolute path"
  refused(flags, message, tmp_path, capfd)


def test_without_jit(tmp_path, capfd):
  flags = [f'--config={CONFIG}', f'--workdir={tmp_path}/run', '--config.compilation_cache=False']
  with jax.disable_jit():
    refused(flags, 'JAX_DISABLE_JIT=1, but the rounds are compiled programs: unset it', tmp_path, capfd)


def test_an_environment_variable_that_jax_refuses(tmp_path):
  done = process(tmp_path / 'run', JAX_DISABLE_JIT='maybe')
  assert done.returncode == 2 and not (tmp_path / 'run').exists()
  assert one_line(done.stderr).startswith('error: JAX cannot be imported (')
  assert 'JAX_DISABLE_JIT' in done.stderr


def test_a_platform_that_jax_does_not_have(tmp_path):
  done = process(tmp_path / 'run', JAX_PLATFORMS='abacus')
  assert done.returncode == 2 and not (tmp_path / 'run').exists()
  assert one_line(done.stderr).startswith("error: JAX_PLATFORMS='abacus': JAX cannot start (")


def test_a_gpu_platform_without_a_gpu(monkeypatch, tmp_path, capfd):
  """JAX fails with an assertion that has no text."""

  def fail():
    raise AssertionError

  monkeypatch.setattr(jax, 'devices', fail)
  flags = [f'--config={CONFIG}', f'--workdir={tmp_path}/run', '--config.compilation_cache=False']
  refused(flags, 'JAX cannot start (there is no such device)', tmp_path, capfd)


def test_a_closed_stdout_and_warnings_as_errors(tmp_path):
  done = process(tmp_path / 'run', *SHORT, redirect='>&-', PYTHONWARNINGS='error')
  assert (done.returncode, done.stderr) == (0, '')
  assert lines(tmp_path / 'run')[-1]['step'] == 8


@pytest.mark.slow
def test_a_closed_stderr_an_ascii_terminal_and_no_such_matplotlib_backend(tmp_path):
  """The table of a sweep with seeds has a ±."""
  environment = {'PYTHONIOENCODING': 'ascii', 'MPLBACKEND': 'abacus'}
  done = process(tmp_path / 'sweep', *SHORT, '--config.seeds=(0,1)', redirect='2>&-', **environment)
  assert done.returncode == 0, done.stdout
  assert r' \xb1 ' in done.stdout
  assert (tmp_path / 'sweep' / 'report.html').exists()


def test_a_valid_matplotlib_backend_is_kept(tmp_path):
  program = 'import vrl_jax.report, matplotlib, os; print(matplotlib.rcParams["backend"], os.environ["MPLBACKEND"])'
  environment = os.environ | {'MPLBACKEND': 'svg'}
  done = subprocess.run([sys.executable, '-c', program], env=environment, capture_output=True, text=True, check=True)
  assert done.stdout == 'svg svg\n'
