"""Dotted paths to the user's own functions: found from the current folder, and every mistake in one line."""

import sys

import pytest

from vrl_jax.config.dotted import import_dotted, user_code
from vrl_jax.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [path for path in sys.path if path])
  before = set(sys.modules)
  yield tmp_path
  for name in set(sys.modules) - before:
    if name.startswith('dotted_'):
      del sys.modules[name]


def write(folder, name, text):
  path = folder / name
  path.parent.mkdir(exist_ok=True)
  path.write_text(text)


def refusal(path):
  with pytest.raises(UserError) as caught:
    import_dotted('task', path)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def test_modules_and_packages_of_the_current_folder_are_found(folder):
  write(folder, 'dotted_one.py', 'import dotted_two\nfun = dotted_two.fun\nclass Maker:\n  make = fun')
  write(folder, 'dotted_two.py', 'def fun(): return 2')
  write(folder, 'dotted_package/inner.py', 'def late():\n  import dotted_three\n  return dotted_three.x')
  assert import_dotted('task', 'dotted_one:fun')() == 2
  assert import_dotted('task', 'dotted_one.fun')() == 2
  assert import_dotted('task', 'dotted_one:Maker.make')() == 2
  write(folder, 'dotted_three.py', 'x = 3')  # written after the folder was searched
  assert import_dotted('task', 'dotted_package.inner:late')() == 3  # imported when the function is called


def test_a_missing_module(folder):
  assert refusal('dotted_none:fun') == (
    f"task='dotted_none:fun': there is no module 'dotted_none' in {folder} or on sys.path"
  )
  write(folder, 'dotted_package/inner.py', '')
  assert "no module 'dotted_package.outer'" in refusal('dotted_package.outer:fun')


def test_a_missing_name(folder):
  write(folder, 'dotted_one.py', 'def make_task(): pass')
  assert refusal('dotted_one:make_tsk').endswith("module 'dotted_one' has no 'make_tsk'; did you mean 'make_task'?")
  assert refusal('dotted_one:xyz').endswith("module 'dotted_one' has no 'xyz'")


def test_a_module_that_cannot_be_imported(folder):
  write(folder, 'dotted_one.py', 'import dotted_missing')
  assert refusal('dotted_one:fun').endswith("importing 'dotted_one' needs 'dotted_missing', which is missing")
  write(folder, 'dotted_two.py', 'x = 1\nraise ValueError("no\\ndata")')
  assert refusal('dotted_two:fun').endswith("importing 'dotted_two' raises ValueError: no data (dotted_two.py, line 2)")
  write(folder, 'dotted_three.py', 'def fun(:')
  assert "importing 'dotted_three' raises SyntaxError: " in (line := refusal('dotted_three:fun'))
  assert line.endswith('(dotted_three.py, line 1)')


@pytest.mark.parametrize('path', ['', ':', 'a:', ':b', 'a b:c', '.b', 'a.', './file.py:f', 'a:b:c'])
def test_malformed_paths(path):
  assert refusal(path) == f'task={path!r}, must be a dotted path such as my_module:my_function'


def test_the_line_of_the_user_s_file_is_named(folder):
  write(folder, 'dotted_one.py', 'import json\ndef fun():\n  return json.loads("{")')
  fun = import_dotted('task', 'dotted_one:fun')
  with pytest.raises(UserError, match=r'^make_task raises JSONDecodeError: .*\(dotted_one.py, line 3\)$') as caught:
    with user_code('make_task'):
      fun()
  assert caught.value.__cause__ is not None


def test_errors_in_one_line_already_stay_as_they_are():
  with pytest.raises(UserError, match='^period=0$'), user_code('make_task'):
    raise UserError('period=0')
