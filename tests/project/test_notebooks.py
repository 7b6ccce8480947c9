"""The notebooks run in their short form, and each script equals its notebook."""

import ast
import base64
import io
import os
import pathlib
import re
import subprocess
import sys

import jupytext
import nbconvert
import nbformat
import pytest
from PIL import Image

FOLDER = pathlib.Path(__file__).parents[2] / 'notebooks'
SCRIPTS = sorted(FOLDER.glob('*.py'))
every_notebook = pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.stem)
SECONDS = 600  # on an idle machine each takes less than 30
MAX_BYTES = 300_000


def _cells(script):
  return [(cell.cell_type, cell.source) for cell in jupytext.read(script).cells]


def _code(script):
  return [source for kind, source in _cells(script) if kind == 'code']


def test_there_are_four_notebooks():
  assert [script.stem[:2] for script in SCRIPTS] == ['01', '02', '03', '04']


@every_notebook
def test_notebook_is_its_script_with_the_outputs_of_one_run(script):
  path = script.with_suffix('.ipynb')
  notebook = nbformat.read(path, 4)
  assert [(cell.cell_type, cell.source) for cell in notebook.cells] == _cells(script), 'run `make notebooks`'
  code = [cell for cell in notebook.cells if cell.cell_type == 'code']
  assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), 'run `make notebooks`'
  outputs = [output for cell in code for output in cell.outputs]
  assert {output.output_type for output in outputs} <= {'stream', 'display_data', 'execute_result'}
  assert not [output.text for output in outputs if output.get('name') == 'stderr']
  pictures = [base64.b64decode(output.data['image/png']) for output in outputs if 'image/png' in output.get('data', ())]
  assert pictures and {Image.open(io.BytesIO(picture)).mode for picture in pictures} == {'P'}  # by shrink_images.py
  assert path.stat().st_size < MAX_BYTES
  texts = [output.get('text') or output.data.get('text/plain', '') for output in outputs]
  assert not [text for text in texts if re.search(r'/(home|root|work|Users)/', text)]


@every_notebook
def test_starts_with_a_badge_and_an_install_cell_of_two_lines(script):
  (_, title), (_, install), *_ = _cells(script)
  assert f'/blob/main/notebooks/{script.stem}.ipynb)' in title and 'colab-badge.svg' in title
  assert len(install.splitlines()) == 2 and install == _cells(SCRIPTS[0])[1][1]


def test_the_exported_page_loads_only_the_badge_from_the_network(monkeypatch):
  # Where a virtual environment borrows the packages of another one, Jupyter does not find the templates by itself.
  monkeypatch.setenv('JUPYTER_PATH', str(pathlib.Path(nbconvert.__file__).parents[4] / 'share' / 'jupyter'))
  exporter = nbconvert.HTMLExporter(
    template_name='offline', extra_template_basedirs=[str(FOLDER / 'export')], mathjax_url='mathjax.js'
  )
  page, _ = exporter.from_filename(str(SCRIPTS[0].with_suffix('.ipynb')))
  loaded = re.findall(r'<(?:script|img|link)\b[^>]*?(?:src|href)="([^"]*)"', page)
  assert [url for url in loaded if not url.startswith('data:')] == [
    'mathjax.js',
    'https://colab.research.google.com/assets/colab-badge.svg',
  ]
  assert '<script>\nMathJax = ' in page and not re.search(r'(from|import)\s*\(?["\']https:', page)


@every_notebook
def test_ends_with_what_to_try_next(script):
  kind, last = _cells(script)[-1]
  assert kind == 'markdown' and '## What to try next' in last


@every_notebook
def test_no_private_names(script):
  lines = [line for source in _code(script) for line in source.splitlines() if not line.startswith('!')]
  tree = ast.parse('\n'.join(lines))
  names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
  names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
  names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
  private = {name for name in names if any(part.startswith('_') for part in name.split('.'))}
  assert private <= {'__name__', '__file__', '_replace'}


def _executed(notebook, folder):
  """Runs a notebook in its short form and returns the outputs of its cells; nothing may be written to stderr."""
  env = {name: value for name, value in os.environ.items() if name not in ('PJRT_NPROC', 'XLA_FLAGS')}  # conftest's
  command = ['--execute', '--to', 'notebook', '--output', 'executed', '--output-dir', folder, notebook]
  done = subprocess.run(
    [sys.executable, '-m', 'nbconvert', *command],
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


@pytest.mark.parametrize(
  'script',
  # The second trains for a minute.
  [pytest.param(s, id=s.stem, marks=pytest.mark.slow if s.stem.startswith('02') else ()) for s in SCRIPTS],
)
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
