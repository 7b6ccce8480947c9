"""The install cell of the notebooks, with and without VRL-JAX installed."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv

import jupytext
import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / 'notebooks').glob('*.py'))
INSTALLED = 'import vrl_jax; print("found", vrl_jax.__file__)\n'


def _cell(script):
  return next(cell.source for cell in jupytext.read(script).cells if cell.cell_type == 'code') + '\n'


def _run(python, program, folder, **env):
  """Runs a program as Jupyter does: in the notebook's directory, which is on sys.path."""
  keep = {name: os.environ[name] for name in ('HOME', 'PATH') if name in os.environ}
  return subprocess.run([python, '-c', program], cwd=folder, env=keep | env, capture_output=True, text=True)


def _environment(folder, **options):
  venv.create(folder, **options)
  return folder / 'bin' / 'python'


def test_all_notebooks_have_the_same_install_cell():
  assert len({_cell(script) for script in NOTEBOOKS}) == 1 and len(NOTEBOOKS) == 4


def test_recognises_a_checkout_by_a_file_that_exists():
  (marker,) = re.findall(r"path / 'vrl_jax' / '([\w.]+)'", _cell(NOTEBOOKS[0]))
  assert (ROOT / 'vrl_jax' / marker).is_file()


def test_installs_nothing_if_the_package_is_installed(tmp_path):
  done = _run(sys.executable, _cell(NOTEBOOKS[0]) + INSTALLED, tmp_path)
  assert done.returncode == 0 and done.stdout.startswith('found') and not done.stderr, done.stderr


def test_without_checkout_and_repository_raises_an_error(tmp_path):
  python = _environment(tmp_path / 'venv')
  done = _run(python, _cell(NOTEBOOKS[0]), tmp_path)
  last = done.stderr.splitlines()[-1]
  assert done.returncode == 1
  assert last == (
    f'ModuleNotFoundError: VRL-JAX is not installed, and {tmp_path} has no checkout: clone it there, or set REPOSITORY'
  )


@pytest.mark.slow
@pytest.mark.parametrize('where', ['checkout above', 'checkout beside', 'repository'])
def test_installs(where, tmp_path):
  python = _environment(tmp_path / 'venv', with_pip=True)
  # Offline and fast: the dependencies and the build backend are those of this environment.
  site = pathlib.Path(
    subprocess.check_output([python, '-c', 'import site; print(site.getsitepackages()[0])'], text=True).strip()
  )
  (site / 'dependencies.pth').write_text(sysconfig.get_paths()['purelib'] + '\n')
  env = {'PIP_NO_DEPS': '1', 'PIP_NO_INDEX': '1', 'PIP_NO_BUILD_ISOLATION': '0'}  # 0 means that there is no isolation
  folder = tmp_path / 'content'
  folder.mkdir()
  if where == 'repository':
    env['VRL_JAX_REPOSITORY'] = f'git+file://localhost{ROOT.as_posix()}'
  else:
    # A checkout with the name of the package, beside the notebook, looks like a namespace package.
    checkout = folder if where == 'checkout above' else folder / 'vrl_jax'
    left_out = shutil.ignore_patterns('.*', 'dist', 'site', 'runs', '__pycache__')
    shutil.copytree(ROOT, checkout, ignore=left_out, dirs_exist_ok=True)
    folder = folder / 'notebooks' if where == 'checkout above' else folder
  done = _run(python, _cell(NOTEBOOKS[0]) + INSTALLED, folder, **env)
  assert done.returncode == 0, done.stderr
  assert done.stdout.splitlines()[-1].startswith(f'found {site}')
