"""The project's own files agree with each other."""

import pathlib
import subprocess
import sys
import tomllib

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
