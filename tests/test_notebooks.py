"""The notebooks run, in their short form, and are what they should be."""

import ast
import importlib.util
import os
import pathlib
import subprocess
import sys

import jupytext
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parents[1] / 'notebooks'
SCRIPTS = sorted(FOLDER.glob('*.py'))
every_notebook = pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.stem)
SECONDS = 300  # on an idle machine each takes less than 30


def _cells(script):
  return [(cell.cell_type, cell.source) for cell in jupytext.read(script).cells]


def _code(script):
  return [source for kind, source in _cells(script) if kind == 'code']


def test_there_are_four():
  assert [script.stem[:2] for script in SCRIPTS] == ['01', '02', '03', '04']


@every_notebook
def test_pairs_agree_and_have_no_output(script):
  notebook = nbformat.read(script.with_suffix('.ipynb'), 4)
  assert [(cell.cell_type, cell.source) for cell in notebook.cells] == _cells(script), 'run `make notebooks`'
  assert not any(cell.get('outputs') or cell.get('execution_count') for cell in notebook.cells)


@every_notebook
def test_it_ends_with_what_to_try_next(script):
  kind, last = _cells(script)[-1]
  assert kind == 'markdown' and '## What to try next' in last


@every_notebook
def test_only_public_names(script):
  tree = ast.parse('\n'.join(_code(script)))
  names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
  names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
  names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
  private = {name for name in names if any(part.startswith('_') for part in name.split('.'))}
  assert private <= {'__name__', '__file__', '_replace'}


# The install cell.


def _run_install_cell(script, monkeypatch):
  """The commands that it would run."""
  commands = []
  monkeypatch.setattr(subprocess, 'run', lambda command, **_: commands.append(command))
  exec(_code(script)[0], {})
  return commands


@every_notebook
def test_install_cell_does_nothing_where_the_package_is(script, monkeypatch):
  assert _code(script)[0] == _code(SCRIPTS[0])[0]
  assert _run_install_cell(script, monkeypatch) == []


def test_install_cell_takes_the_checkout_around(monkeypatch):
  monkeypatch.chdir(FOLDER)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  ((python, *command),) = _run_install_cell(SCRIPTS[0], monkeypatch)
  assert python == sys.executable
  assert command[:3] == ['-m', 'pip', 'install']
  assert command[-1].split('[')[0] == str(FOLDER.parent)


def test_install_cell_else_takes_the_repository(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  ((*_, source),) = _run_install_cell(SCRIPTS[0], monkeypatch)
  assert source.startswith('vrl-jax') and ' @ git+https://' in source


# For real.


@every_notebook
def test_it_runs(script, tmp_path):
  env = {name: value for name, value in os.environ.items() if name not in ('PJRT_NPROC', 'XLA_FLAGS')}  # conftest's
  command = ['nbconvert', '--execute', '--to', 'notebook', '--output-dir', tmp_path, script.with_suffix('.ipynb')]
  done = subprocess.run(
    [sys.executable, '-m', 'jupyter', *command],
    env=env | {'VRL_JAX_QUICK': '1', 'MPLBACKEND': 'module://matplotlib_inline.backend_inline'},
    timeout=SECONDS,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  outputs = [
    output for cell in nbformat.read(tmp_path / f'{script.stem}.ipynb', 4).cells for output in cell.get('outputs', ())
  ]
  stderr = [output.text for output in outputs if output.get('name') == 'stderr']
  assert not stderr, stderr
  assert any('image/png' in output.get('data', ()) for output in outputs)
