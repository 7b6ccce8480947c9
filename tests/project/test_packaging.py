"""Configs by name, and the wheel: its contents, and a run without a checkout."""

import functools
import pathlib
import zipfile

import pytest
from support import wheel

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
def built(tmp_path_factory):
  return wheel.build(tmp_path_factory.mktemp('dist'))


def test_contents_of_the_wheel(built):
  names = zipfile.ZipFile(built).namelist()
  assert {name.split('/')[0] for name in names} == {'vrl_jax', f'vrl_jax-{vrl_jax.__version__}.dist-info'}
  modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'vrl_jax').rglob('*.py')}
  others = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'vrl_jax' / 'report').glob('*.[chj]*s*')}
  configs = {f'vrl_jax/{path.relative_to(ROOT).as_posix()}' for path in (ROOT / 'configs').rglob('*.py')}
  assert modules | others | configs | {'vrl_jax/py.typed', 'vrl_jax/report/page.html'} <= set(names)


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_without_the_checkout(built, tmp_path):
  installed = wheel.Installed(built, tmp_path)
  run = functools.partial(installed.run, tmp_path)
  where = run('python', '-c', 'import vrl_jax; print(vrl_jax.__file__)').stdout
  assert where.startswith(str(installed.site))
  done = run('vrl-jax', '--config', 'quadratic', '--workdir', 'one', '--config.steps=20')
  assert done.returncode == 0 and 'step 20' in done.stdout, done.stderr
  # A config that imports another, and a sweep with its report, whose page is made from the package's own files.
  done = run('vrl-jax', '--config=figures/quadratic', '--workdir=many', '--config.steps=20', '--config.seeds=()')
  assert done.returncode == 0 and (tmp_path / 'many' / 'report.html').exists(), done.stderr
  done = run('vrl-jax', '--config', 'nothing')
  assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
