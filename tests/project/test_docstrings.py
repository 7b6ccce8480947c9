"""Every public function and class has an example in its docstring; pytest runs them all (`--doctest-modules`)."""

import ast
import pathlib

import pytest

import vrl_jax

PACKAGE = pathlib.Path(vrl_jax.__file__).parent
# Modules with a leading underscore are private; pytest skips __main__.py.
MODULES = sorted(path for path in PACKAGE.rglob('*.py') if path.name == '__init__.py' or path.name[0] != '_')

# Public names without an example, and the reason.
WITHOUT = {
  'data.tfds.prepare.prepare': 'needs complete archives; tested in tests/data/test_tfds_prepare.py',
  'data.tfds.prepare.download_mnist': 'needs a network',
  'cluster.supervisor.attach_to_parent': 'replaces the stdout of the process',
  'cluster.supervisor.supervise': 'reruns the command line of the process',
  'cluster.supervisor.wait_for_jax_to_abort': 'waits for JAX to end the process',
  'tools.communication.read_round': 'needs a compiled round; the example of count_communication runs it',
  'training.trainer.Trainer': 'needs everything that train_and_evaluate, whose example runs it, opens',
  'tools.extract_features.inception_v3': 'needs Keras and weights',
}


def _name(path):
  return '.'.join(path.relative_to(PACKAGE).with_suffix('').parts)


def _is_overload(node):
  return any(isinstance(decorator, ast.Name) and decorator.id == 'overload' for decorator in node.decorator_list)


def _without_example(path):
  """The public names of a module without `>>>` in their docstring or, for a class, in those of its methods."""
  for node in ast.parse(path.read_text()).body:
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith('_') and not _is_overload(node):
      methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
      documented = [node, *methods] if isinstance(node, ast.ClassDef) else [node]
      if not any('>>> ' in (ast.get_docstring(one) or '') for one in documented):
        yield f'{_name(path)}.{node.name}'


@pytest.mark.parametrize('path', MODULES, ids=_name)
def test_every_public_name_has_an_example(path):
  assert [name for name in _without_example(path) if name not in WITHOUT] == []


def test_listed_exceptions_have_no_example():
  assert {name for path in MODULES for name in _without_example(path)} == set(WITHOUT)
