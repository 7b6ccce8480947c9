"""The project's own files agree with each other."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def test_requirements_are_those_of_the_package():
  project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
  lines = (ROOT / 'requirements.txt').read_text().splitlines()
  assert [line for line in lines if not line.startswith('#')] == project['dependencies']


def test_importing_the_package_starts_neither_tensorflow_nor_a_backend():
  code = (
    'import sys, vrl_jax, vrl_jax.train, vrl_jax.devices as d; assert not d.backend_started(); '
    'assert not {"tensorflow", "tensorflow_datasets", "torch"} & set(sys.modules)'
  )
  subprocess.run([sys.executable, '-c', code], check=True, cwd=ROOT)


def test_there_is_one_pmap():
  calls = [path.name for path in (ROOT / 'vrl_jax').rglob('*.py') if 'jax.pmap(' in path.read_text()]
  assert calls == ['arrangement.py']


def test_a_python_that_pyenv_has_and_has_not_switched_on_is_found(tmp_path):
  python = tmp_path / '.pyenv' / 'versions' / '3.99.1' / 'bin' / 'python3.99'
  python.parent.mkdir(parents=True)
  python.touch()
  command = ['make', '--dry-run', 'test', 'VENV=/nowhere', f'HOME={tmp_path}', 'PYTHON=python3.99']
  shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
  assert f'{python} -m venv /nowhere' in shown


@pytest.mark.parametrize(
  'target', ['demo', 'multihost-demo', 'test', 'test-all', 'lint', 'bench', 'results', 'notebooks', 'docs', 'dist']
)
def test_every_target_installs_extras_that_there_are(target):
  shown = subprocess.run(
    ['make', '--dry-run', target, 'VENV=/nowhere'], capture_output=True, text=True, check=True, cwd=ROOT
  ).stdout
  (extras,) = re.findall(r"--editable '\.(.*)'", shown)
  project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
  assert extras == '' or extras[1:-1] in project['optional-dependencies'], extras
