"""The rooms of the package and the arrows between them."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest
from support.rooms import ROOMS

import vrl_jax

PACKAGE = pathlib.Path(vrl_jax.__file__).parent
MODULES = {
  '.'.join(path.relative_to(PACKAGE).with_suffix('').parts).removesuffix('.__init__'): path
  for path in sorted(PACKAGE.rglob('*.py'))
  if path.relative_to(PACKAGE).parts[0] not in ('__init__.py', '__main__.py', 'configs')
}


def _imports(path):
  """The modules of the package that a file imports, at its top or inside a function."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      yield from (alias.name.removeprefix('vrl_jax.') for alias in node.names if alias.name.startswith('vrl_jax.'))
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.split('.')[0] == 'vrl_jax':
      for alias in node.names:
        full = f'{node.module}.{alias.name}'.removeprefix('vrl_jax.')
        yield full if full in MODULES else node.module.removeprefix('vrl_jax.')
    elif isinstance(node, ast.Constant) and re.fullmatch(r'vrl_jax(\.\w+)+:\w+', str(node.value)):  # looked up later
      yield node.value.partition(':')[0].removeprefix('vrl_jax.')


def test_every_module_is_in_a_room():
  assert {name.split('.')[0] for name in MODULES} == set(ROOMS)


def test_the_tests_mirror_the_rooms():
  folders = {path.name for path in pathlib.Path(__file__).parents[1].iterdir() if any(path.glob('*.py'))}
  assert folders - set(ROOMS) == {'project', 'support'}
  assert {name for name in ROOMS if (PACKAGE / name).is_dir()} <= folders


@pytest.mark.parametrize('name', MODULES)
def test_a_module_imports_only_from_rooms_before_its_own(name):
  allowed = ROOMS[: ROOMS.index(name.split('.')[0]) + 1]
  assert [other for other in _imports(MODULES[name]) if other.split('.')[0] not in allowed] == []


def test_no_module_imports_itself_in_a_circle():
  done, path = set(), []

  def visit(name):
    assert name not in path, ' -> '.join([*path[path.index(name) :], name])
    if name in done or name not in MODULES:
      return
    path.append(name)
    for other in _imports(MODULES[name]):
      if other != name:
        visit(other)
    done.add(path.pop())

  for name in MODULES:
    visit(name)


def test_no_file_is_longer_than_300_lines():
  assert {name: lines for name, path in MODULES.items() if (lines := len(path.read_text().splitlines())) > 300} == {}


@pytest.mark.parametrize('name', MODULES)
def test_a_module_plays_no_tricks(name):
  """Not in code; a docstring may show what is patched, and an example may use unittest.mock."""
  code = ast.unparse(_without_docstrings(MODULES[name]))
  tricks = r'\bmock\b|sys\._getframe|inspect\.(?:stack|currentframe)|sys\.modules\.pop|sys\.modules\[.*\] =|^ *global '
  assert re.findall(tricks, code, re.MULTILINE) == []
  ignored = re.findall(r'# type: ignore(?!\[[\w-]+\]  # )', MODULES[name].read_text())
  assert ignored == [], 'name the error and the reason'


def _without_docstrings(path):
  tree = ast.parse(path.read_text())
  for node in ast.walk(tree):
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
      node.body[0] = ast.Pass()
  return tree


@pytest.mark.parametrize(
  ('statement', 'unwanted'),
  [
    ('import vrl_jax.__main__', ('jax', 'numpy')),  # signals are handled before
    (
      'import vrl_jax; vrl_jax.vrl_sgd',
      ('tensorflow_datasets', 'matplotlib', 'orbax', 'flax', 'ml_collections', 'vrl_jax.engine'),
    ),
    (
      'import vrl_jax.report',
      ('tensorflow_datasets', 'orbax', 'flax', 'vrl_jax.engine', 'vrl_jax.training', 'vrl_jax.tasks'),
    ),
  ],
)
def test_what_an_import_leaves_alone(statement, unwanted):
  code = f'import sys; {statement}; print(*sys.modules)'
  loaded = subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, text=True).stdout.split()
  assert [name for name in loaded if name.startswith(unwanted)] == []


def test_type_checkers_and_users_see_the_same_lazy_names():
  (block,) = [node for node in ast.parse((PACKAGE / '__init__.py').read_text()).body if isinstance(node, ast.If)]
  typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
  (exported,) = [ast.literal_eval(node.value) for node in block.body if isinstance(node, ast.Assign)]
  assert typed.pop('algorithms') == 'vrl_jax'
  assert typed.pop('*') == 'vrl_jax.algorithms'
  assert typed == vrl_jax._LAZY
  assert exported == list(vrl_jax._LAZY)


@pytest.mark.parametrize('name', sorted(vrl_jax.__all__))
def test_every_public_name_exists(name):
  assert getattr(vrl_jax, name) is not None
  assert name in dir(vrl_jax)
