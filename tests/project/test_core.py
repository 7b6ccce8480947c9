"""An environment without the extra `train`: the core works, and the rest says in one line what to install.

The environment has links to the packages that the dependencies in pyproject.toml bring, and nothing else.
"""

import ast
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import venv

import pytest

import vrl_jax
from vrl_jax.errors import MissingExtra, require_extra

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / 'vrl_jax'
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
EXTRAS = PROJECT['optional-dependencies']
CORE_ROOMS = ('accounting', 'algorithms', 'cluster', 'cpu', 'engine')
# Modules that need more than the packages around them ask for: those who import them have asked already.
GUARDED = re.compile(r'vrl_jax\.(cpu\.(conv_pool|winograd)|data\.tfds\.builders.*)')
INSTALL = "pip install 'vrl-jax[train]'"


def _name(requirement):
  return re.match(r'[\w.-]+', requirement)[0].lower().replace('_', '-')


def _closure(requirements):
  """The distributions that these requirements bring."""
  found, waiting = {}, [_name(one) for one in requirements]
  while waiting:
    if (name := waiting.pop()) not in found:
      found[name] = importlib.metadata.distribution(name)
      waiting += [_name(one) for one in found[name].requires or () if ';' not in one]
  return found


@pytest.fixture(scope='module')
def core(tmp_path_factory):
  """Runs Python in the environment; returns (status, stdout, stderr)."""
  folder = tmp_path_factory.mktemp('core')
  venv.create(folder / 'venv')
  (site,) = (folder / 'venv').glob('lib/*/site-packages')
  (site / 'vrl_jax').symlink_to(PACKAGE)
  for distribution in _closure(PROJECT['dependencies']).values():
    for name in {file.parts[0] for file in distribution.files} - {'..', '__pycache__'}:
      (site / name).symlink_to(distribution.locate_file(name))
  env = {name: os.environ[name] for name in ('HOME', 'PATH') if name in os.environ}

  def run(*arguments):
    command = [folder / 'venv' / 'bin' / 'python', '-W', 'error', *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr

  return run


def test_the_core_is_jax_and_optax_with_few_others():
  others = set(_closure(PROJECT['dependencies'])) - {'jax', 'optax'}
  assert others == {'absl-py', 'jaxlib', 'ml-dtypes', 'numpy', 'opt-einsum', 'scipy'}


def test_the_snippet_of_the_readme_runs_in_the_core(core):
  (snippet,) = re.findall(r'```python\n(.*?)```', (ROOT / 'README.md').read_text(), re.S)
  status, out, err = core('-c', snippet)
  assert (status, err) == (0, '') and out.startswith('[1.66666')


def test_the_engine_and_the_accounting_run_in_the_core(core):
  program = f"""
import doctest, importlib
modules = [importlib.import_module(name) for name in {[*_modules(CORE_ROOMS)]}]
from vrl_jax import *
import vrl_jax
from vrl_jax.accounting import theory, traffic
for example in (Engine, as_optax, traffic.traffic, theory.auto_period):
  doctest.run_docstring_examples(example, vars(importlib.import_module(example.__module__)))
print(*dir(vrl_jax))
"""
  status, out, err = core('-c', program)
  assert (status, err) == (0, '') and len(out.splitlines()) == 1, out + err
  assert {'Engine', 'AXES', 'vrl_sgd'} <= set(out.split()) and 'train_and_evaluate' not in out.split()


@pytest.mark.parametrize(
  'arguments',
  [
    ('-c', 'import sys; from vrl_jax.__main__ import console; sys.exit(console())'),  # the command vrl-jax
    (ROOT / 'launch.py', '--config', 'quadratic'),
    ('-m', 'vrl_jax', '--help'),
    ('-m', 'vrl_jax.report', 'runs'),
    *(('-m', f'vrl_jax.tools.{path.stem}') for path in sorted((PACKAGE / 'tools').glob('[a-z]*.py'))),
  ],
  ids=lambda arguments: str(arguments[1]),
)
def test_commands_name_the_missing_extra_in_one_line(core, arguments):
  status, out, err = core(*arguments)
  assert status in (1, 2) and out == '' and err.count('\n') == 1 and 'Traceback' not in err
  assert INSTALL in err, err


def test_public_functions_name_the_missing_extra(core):
  program = """
import vrl_jax
for name in ('train_and_evaluate', 'load_config', 'default_config', 'make_task', 'run_sweep', 'tasks'):
  try:
    getattr(vrl_jax, name)
  except ImportError as error:
    print(name, error)
from vrl_jax import train_and_evaluate
"""
  status, out, err = core('-c', program)
  lines = [*out.splitlines(), err.splitlines()[-1]]
  assert status == 1 and len(lines) == 7 and all(INSTALL in line for line in lines), out + err


# What is declared. A package around a module asks for everything that the module imports, so that no import fails.


def _modules(rooms):
  """The modules of these rooms by name."""
  paths = [path for room in rooms for path in sorted((PACKAGE / room).rglob('*.py')) if path.stem != '__main__']
  names = ['.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__') for path in paths]
  return {name: path for name, path in zip(names, paths) if not GUARDED.fullmatch(name)}


def _statements(body):
  """The statements that run on import."""
  for node in body:
    if not isinstance(node, ast.FunctionDef) and 'TYPE_CHECKING' not in ast.unparse(node).partition('\n')[0]:
      yield node
      yield from _statements([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


def _imports(path):
  """The modules that a file imports when it is imported; `a.b` and `a` for `from a import b`."""
  for node in _statements(ast.parse(path.read_text()).body):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def _declared(path):
  """What a file asks for."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Call) and ast.unparse(node.func) == 'require_extra':
      yield from (argument.value for argument in node.args[2:])


def test_packages_ask_for_what_their_modules_import():
  rooms = [path.name for path in PACKAGE.iterdir() if (path / '__init__.py').exists()]
  modules, in_core = _modules(rooms), {'jax', 'jaxlib', 'numpy', 'optax', 'vrl_jax', *sys.stdlib_module_names}
  needs = {}

  def needed(name):
    if name not in needs:
      needs[name] = set()  # until it is known; there are no cycles
      imported = set(_imports(modules[name]))
      needs[name] = {one.partition('.')[0] for one in imported} - in_core
      needs[name] |= {other for one in imported & set(modules) for other in needed(one)}
    return needs[name]

  for name in modules:
    parts = name.split('.')
    around = [modules['.'.join(parts[:end])] for end in range(2, len(parts) + 1) if '.'.join(parts[:end]) in modules]
    asked = {one for path in around if path.name == '__init__.py' for one in _declared(path)}
    if parts[1] == 'report':
      asked |= set(_declared(PACKAGE / 'report' / 'backend.py'))  # which its __init__ imports first
    assert needed(name) <= asked, name
  assert {'flax', 'ml_collections', 'orbax', 'matplotlib'} <= needed('vrl_jax.cli') | needs['vrl_jax.training.sweep']


def test_the_extra_installs_what_is_asked_for():
  calls = [
    [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    for path in PACKAGE.rglob('*.py')
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == 'require_extra'
  ]
  assert len(calls) > 8 and {extra for extra, *_ in calls} <= set(EXTRAS)
  asked = {module for path in PACKAGE.rglob('*.py') for module in _declared(path)} - {'keras', 'PIL'}
  installed, places = _closure(EXTRAS['train']), importlib.metadata.packages_distributions()
  assert [one for one in asked if not {_name(dist) for dist in places[one]} & set(installed)] == []


def test_a_missing_extra_is_an_import_error_with_the_name_of_the_package():
  with pytest.raises(ImportError, match=r"a.b needs nowhere: pip install 'vrl-jax\[train\]'") as caught:
    require_extra('train', 'a.b', 'flax', 'nowhere')
  assert isinstance(caught.value, MissingExtra) and caught.value.name == 'a.b' and caught.value.exit_status == 2


def test_version(core):
  assert core('-m', 'vrl_jax', '--version') == (0, f'vrl-jax {vrl_jax.__version__}\n', '')
  assert re.fullmatch(r'\d+\.\d+\.\d+', vrl_jax.__version__)
