"""Every public function and class has an example in its docstring; pytest runs them all (`--doctest-modules`)."""

import ast
import pathlib

import pytest

import vrl_jax

PACKAGE = pathlib.Path(vrl_jax.__file__).parent
# A leading underscore is private, and pytest leaves every __main__.py out.
MODULES = sorted(path for path in PACKAGE.rglob('*.py') if path.name == '__init__.py' or path.name[0] != '_')

# What no example can run, and why.
WITHOUT = {
  'data.prepare.prepare': 'runs TFDS on whole archives; tests/data/test_tfds_preparing.py does it',
  'data.prepare.fetch_mnist': 'needs a network',
  'hosts.listen': 'needs several processes',
  'hosts.stop_listening': 'needs several processes',
  'launching.console': 'is main() with the arguments of the process',
  'supervising.be_supervised': 'gives the process another stdout',
  'supervising.supervise': 'runs the command line of the process again',
  'supervising.wait_for_the_end': 'waits for JAX to end the process',
  'tools.extract_features.inception_v3': 'needs Keras and weights',
}


def _name(path):
  return '.'.join(path.relative_to(PACKAGE).with_suffix('').parts)


def _without_example(path):
  """The public names of a module whose docstring (for a class, also its methods' docstrings) has no `>>>`."""
  for node in ast.parse(path.read_text()).body:
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith('_'):
      methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
      documented = [node, *methods] if isinstance(node, ast.ClassDef) else [node]
      if not any('>>> ' in (ast.get_docstring(one) or '') for one in documented):
        yield f'{_name(path)}.{node.name}'


@pytest.mark.parametrize('path', MODULES, ids=_name)
def test_every_public_name_has_an_example(path):
  assert [name for name in _without_example(path) if name not in WITHOUT] == []


def test_the_exceptions_are_exceptions():
  assert {name for path in MODULES for name in _without_example(path)} == set(WITHOUT)
