"""Configs by name, and the wheel: its contents, and a run without a checkout."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

import vrl_jax
from vrl_jax.config import files
from vrl_jax.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]


# Configs by name.


def test_every_config_has_a_name_and_loads():
  found = [path for path in (ROOT / 'configs').rglob('*.py') if 'def get_config(' in path.read_text()]
  assert len(files.config_names()) == len(found)
  for name in files.config_names():
    assert 'task' in files.load_config(name)


@pytest.mark.parametrize('spelling', ['quadratic', 'quadratic.py', 'configs/quadratic', 'configs/quadratic.py'])
def test_config_is_found_from_any_directory(spelling, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert files.config_path(spelling).samefile(ROOT / 'configs' / 'quadratic.py')


def test_a_local_file_precedes_a_packaged_config(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  own = tmp_path / 'configs' / 'quadratic.py'
  own.parent.mkdir()
  own.write_text('def get_config(variant=1):\n  return {"task": variant}\n')
  assert files.config_path('configs/quadratic.py').samefile(own)
  assert files.load_config('configs/quadratic.py') == {'task': 1}
  assert files.load_config('configs/quadratic.py:two') == {'task': 'two'}


def test_unknown_config_raises_with_the_known_names():
  with pytest.raises(UserError, match=r"config='quadratc': no such file or config; the configs are .*, quadratic,"):
    files.config_path('quadratc')


# The wheel.


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
  folder = tmp_path_factory.mktemp('dist')
  command = [sys.executable, '-m', 'build', '--wheel', '--no-isolation', '--outdir', folder, ROOT]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  (path,) = folder.glob('*.whl')
  return path


def test_contents_of_the_wheel(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  assert {name.split('/')[0] for name in names} == {'vrl_jax', f'vrl_jax-{vrl_jax.__version__}.dist-info'}
  modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'vrl_jax').rglob('*.py')}
  others = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'vrl_jax' / 'report').glob('*.[chj]*s*')}
  configs = {f'vrl_jax/{path.relative_to(ROOT).as_posix()}' for path in (ROOT / 'configs').rglob('*.py')}
  assert modules | others | configs | {'vrl_jax/py.typed', 'vrl_jax/report/page.html'} <= set(names)


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_without_the_checkout(wheel, tmp_path):
  environment = tmp_path / 'venv'
  venv.create(environment, with_pip=True)
  python = environment / 'bin' / 'python'
  subprocess.run([python, '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-index', wheel], check=True)
  # The dependencies are those of this environment, without vrl_jax: a path does not include an editable install.
  site = environment / 'lib' / f'python{sys.version_info[0]}.{sys.version_info[1]}' / 'site-packages'
  (site / 'dependencies.pth').write_text(sysconfig.get_paths()['purelib'] + '\n')
  env = {name: os.environ[name] for name in ('HOME', 'PATH') if name in os.environ}

  def run(*command):
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

  where = run(python, '-c', 'import vrl_jax; print(vrl_jax.__file__)').stdout
  assert where.startswith(str(site))
  command = environment / 'bin' / 'vrl-jax'
  done = run(command, '--config', 'quadratic', '--workdir', 'one', '--config.steps=20')
  assert done.returncode == 0 and 'step 20' in done.stdout, done.stderr
  # A config that imports another, and a sweep with its report, whose page is made from the package's own files.
  done = run(command, '--config=figures/quadratic', '--workdir=many', '--config.steps=20', '--config.seeds=()')
  assert done.returncode == 0 and (tmp_path / 'many' / 'report.html').exists(), done.stderr
  done = run(command, '--config', 'nothing')
  assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
