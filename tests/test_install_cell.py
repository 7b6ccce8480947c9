"""The notebooks' first cell, run by Pythons that have VRL-JAX and Pythons that have not."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv

import jupytext
import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / 'notebooks').glob('*.py'))
INSTALLED = 'import vrl_jax; print("found", vrl_jax.__file__)\n'


def _cell(script):
  return next(cell.source for cell in jupytext.read(script).cells if cell.cell_type == 'code') + '\n'


def _run(python, program, folder, **env):
  """As Jupyter does, from the notebook's folder, which is on the path."""
  keep = {name: os.environ[name] for name in ('HOME', 'PATH') if name in os.environ}
  return subprocess.run([python, '-c', program], cwd=folder, env=keep | env, capture_output=True, text=True)


def _environment(folder, **options):
  venv.create(folder, **options)
  return folder / 'bin' / 'python'


def test_all_notebooks_have_the_same_one():
  assert len({_cell(script) for script in NOTEBOOKS}) == 1 and len(NOTEBOOKS) == 4


def test_it_does_nothing_where_the_package_is(tmp_path):
  done = _run(sys.executable, _cell(NOTEBOOKS[0]) + INSTALLED, tmp_path)
  assert done.returncode == 0 and done.stdout.startswith('found') and not done.stderr, done.stderr


def test_without_package_checkout_and_address_it_says_what_to_do(tmp_path):
  python = _environment(tmp_path / 'venv')
  done = _run(python, _cell(NOTEBOOKS[0]), tmp_path)
  last = done.stderr.splitlines()[-1]
  assert done.returncode == 1
  assert last == (
    f'ModuleNotFoundError: no VRL-JAX in or around {tmp_path}: clone or upload it to there, or set REPOSITORY above'
  )


@pytest.mark.slow
@pytest.mark.parametrize('where', ['checkout around', 'checkout beside', 'repository'])
def test_it_installs(where, tmp_path):
  python = _environment(tmp_path / 'venv', with_pip=True)
  # Offline and quickly: what VRL-JAX needs, and what builds it, are this environment's.
  site = pathlib.Path(
    subprocess.check_output([python, '-c', 'import site; print(site.getsitepackages()[0])'], text=True).strip()
  )
  (site / 'dependencies.pth').write_text(sysconfig.get_paths()['purelib'] + '\n')
  env = {'PIP_NO_DEPS': '1', 'PIP_NO_INDEX': '1', 'PIP_NO_BUILD_ISOLATION': '0'}  # pip's own spelling of yes
  folder = tmp_path / 'content'
  folder.mkdir()
  if where == 'repository':
    env['VRL_JAX_REPOSITORY'] = f'git+file://localhost{ROOT.as_posix()}'
  else:
    # Named as the package, the checkout hides in the notebook's folder as a namespace package.
    checkout = folder if where == 'checkout around' else folder / 'vrl_jax'
    left_out = shutil.ignore_patterns('.*', 'dist', 'site', 'runs', '__pycache__')
    shutil.copytree(ROOT, checkout, ignore=left_out, dirs_exist_ok=True)
    folder = folder / 'notebooks' if where == 'checkout around' else folder
  done = _run(python, _cell(NOTEBOOKS[0]) + INSTALLED, folder, **env)
  assert done.returncode == 0, done.stderr
  assert done.stdout.splitlines()[-1].startswith(f'found {site}')
