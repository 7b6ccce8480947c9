"""The notebooks run in their short form, and each script equals its notebook."""

import ast
import os
import pathlib
import subprocess
import sys

import jupytext
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / 'notebooks'
SCRIPTS = sorted(FOLDER.glob('*.py'))
every_notebook = pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.stem)
SECONDS = 600  # on an idle machine each takes less than 30


def _cells(script):
  return [(cell.cell_type, cell.source) for cell in jupytext.read(script).cells]


def _code(script):
  return [source for kind, source in _cells(script) if kind == 'code']


def test_there_are_four_notebooks():
  assert [script.stem[:2] for script in SCRIPTS] == ['01', '02', '03', '04']


@every_notebook
def test_script_equals_notebook_without_outputs(script):
  notebook = nbformat.read(script.with_suffix('.ipynb'), 4)
  assert [(cell.cell_type, cell.source) for cell in notebook.cells] == _cells(script), 'run `make notebooks`'
  assert not any(cell.get('outputs') or cell.get('execution_count') for cell in notebook.cells)


@every_notebook
def test_ends_with_what_to_try_next(script):
  kind, last = _cells(script)[-1]
  assert kind == 'markdown' and '## What to try next' in last


@every_notebook
def test_no_private_names(script):
  tree = ast.parse('\n'.join(_code(script)))
  names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
  names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
  names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
  private = {name for name in names if any(part.startswith('_') for part in name.split('.'))}
  assert private <= {'__name__', '__file__', '_replace'}


def _executed(notebook, folder):
  """Runs a notebook in its short form and returns the outputs of its cells; nothing may be written to stderr."""
  env = {name: value for name, value in os.environ.items() if name not in ('PJRT_NPROC', 'XLA_FLAGS')}  # conftest's
  command = ['nbconvert', '--execute', '--to', 'notebook', '--output', 'executed', '--output-dir', folder, notebook]
  done = subprocess.run(
    [sys.executable, '-m', 'jupyter', *command],
    env=env | {'VRL_JAX_QUICK': '1', 'MPLBACKEND': 'module://matplotlib_inline.backend_inline'},
    timeout=SECONDS,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  cells = nbformat.read(folder / 'executed.ipynb', 4).cells
  outputs = [output for cell in cells for output in cell.get('outputs', ())]
  assert not [output.text for output in outputs if output.get('name') == 'stderr']
  assert any('image/png' in output.get('data', ()) for output in outputs)
  return outputs


@every_notebook
def test_runs(script, tmp_path):
  outputs = _executed(script.with_suffix('.ipynb'), tmp_path)
  if script.stem.startswith('04'):  # it runs the common tests on its algorithm
    assert any(' passed' in output.get('text', '') for output in outputs)


@pytest.mark.slow
@pytest.mark.skipif('VRL_JAX_DATA' not in os.environ, reason='VRL_JAX_DATA is not set')
def test_lenet_runs_on_all_of_mnist(tmp_path):
  (script,) = [script for script in SCRIPTS if script.stem.startswith('02')]
  text = script.read_text()
  for old, new in (
    ("DATASET = 'mnist_5k'", "DATASET = 'mnist'"),
    ("DATA_DIR = 'data'", f'DATA_DIR = {os.environ["VRL_JAX_DATA"]!r}'),
  ):
    assert text.count(old) == 1
    text = text.replace(old, new)
  jupytext.write(jupytext.reads(text, 'py:percent'), notebook := tmp_path / 'all_of_mnist.ipynb')
  outputs = _executed(notebook, tmp_path)
  assert any('60,000 training' in output.get('text', '') for output in outputs)
