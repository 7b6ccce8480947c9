"""The install cell of the notebooks, with and without VRL-JAX installed."""

import pathlib
import re
import subprocess
import sys
import venv

import jupytext
import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = min((ROOT / 'notebooks').glob('*.py'))
# A Python that writes its arguments to a file, and has VRL-JAX or lacks it.
_PYTHON = """#!/bin/sh
echo "$@" >> {log}
case "$1" in -c) exit {status};; esac
"""


def _command(python):
  """The shell command of the cell, as IPython expands it."""
  cell = jupytext.read(NOTEBOOK).cells[1].source.splitlines()
  assert cell[0].startswith('import sys') and cell[1].startswith('!{sys.executable}')
  return cell[1][1:].replace('{sys.executable}', str(python))


@pytest.mark.parametrize(('status', 'calls'), [(0, 1), (1, 2)])
def test_installs_only_if_the_package_is_missing(tmp_path, status, calls):
  python, log = tmp_path / 'python', tmp_path / 'log'
  python.write_text(_PYTHON.format(log=log, status=status))
  python.chmod(0o755)
  subprocess.run(_command(python), shell=True, check=True)
  first, *more = log.read_text().splitlines()
  assert first == '-c import vrl_jax' and len(more) == calls - 1
  for call in more:
    assert re.fullmatch(r'-m pip install --quiet vrl-jax\[train\] @ git\+https://github\.com/\S+', call)


@pytest.mark.slow
def test_installs_from_a_repository(tmp_path):
  venv.create(tmp_path / 'venv', with_pip=True)
  python = tmp_path / 'venv' / 'bin' / 'python'
  # Offline and fast: the dependencies and the build backend are those of this environment.
  site = pathlib.Path(
    subprocess.check_output([python, '-c', 'import site; print(site.getsitepackages()[0])'], text=True).strip()
  )
  # Without VRL-JAX itself: an editable install leaves a folder `vrl_jax` with the configs there, which can be imported.
  dependencies = tmp_path / 'dependencies'
  dependencies.mkdir()
  for folder in reversed([pathlib.Path(path) for path in sys.path if path.endswith('site-packages')]):
    for path in folder.iterdir():
      if not path.name.startswith('vrl_jax'):
        (dependencies / path.name).unlink(missing_ok=True)
        (dependencies / path.name).symlink_to(path)
  (site / 'dependencies.pth').write_text(str(dependencies))
  env = {'PATH': '/usr/bin:/bin', 'HOME': str(tmp_path)}
  env |= {'PIP_NO_DEPS': '1', 'PIP_NO_INDEX': '1', 'PIP_NO_BUILD_ISOLATION': '0'}  # 0 means that there is no isolation
  command = re.sub(r'git\+https://[^\']*', f'git+file://localhost{ROOT.as_posix()}', _command(python))
  subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=env)
  show = [python, '-c', 'import vrl_jax; print(vrl_jax.__file__)']
  assert subprocess.check_output(show, text=True, cwd=tmp_path, env=env).startswith(str(site))
  assert sys.prefix not in str(site)
