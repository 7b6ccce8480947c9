"""The documentation builds without a warning, and its commands and Python snippets run."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest
from support.public_api import PUBLIC
from support.rooms import ROOMS

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted((ROOT / 'docs').rglob('*.md'))
_BLOCK = re.compile(r'^```(\w+)\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_KINDS = {'python', 'console'}


def _blocks(page):
  """(language, text) of every code block that is not marked as not run."""
  blocks = _BLOCK.findall(page.read_text())
  return [(kind, text) for kind, text in blocks if 'not run' not in text.splitlines()[0]]


def _script(page, folder):
  """One Python program with the snippets and commands of a page; blocks that begin with a file name become that file."""
  program = ['import subprocess']
  for kind, text in _blocks(page):
    first = text.splitlines()[0]
    if kind == 'console':
      commands = [line.removeprefix('$ ') for line in text.splitlines() if line.startswith('$ ')]
      assert commands, f'{page.name}: a console block without a command'
      program += [f'subprocess.run({command!r}, shell=True, check=True)' for command in commands]
    elif re.fullmatch(r'# \w+\.py', first):
      (folder / first[2:]).write_text(text)
    else:
      program.append(text)
  return '\n'.join(program)


@pytest.mark.parametrize(
  'page',
  [
    pytest.param(page, id=page.stem, marks=pytest.mark.slow if page.stem in ('configs', 'fit') else ())
    for page in PAGES
    if _blocks(page)
  ],
)
def test_commands_and_snippets_run(page, tmp_path):
  for name in ('launch.py', 'configs'):
    (tmp_path / name).symlink_to(ROOT / name)
  script = tmp_path / f'page_{page.stem}.py'
  script.write_text(_script(page, tmp_path))
  env = {name: value for name, value in os.environ.items() if name not in ('PJRT_NPROC', 'XLA_FLAGS')}  # conftest's
  env['PATH'] = f'{pathlib.Path(sys.executable).parent}:{env["PATH"]}'
  done = subprocess.run([sys.executable, script.name], cwd=tmp_path, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_every_block_is_python_or_console():
  kinds = {kind for page in PAGES for kind, _ in _BLOCK.findall(page.read_text())}
  assert kinds == _KINDS
  fences = sum(line.startswith('```') for page in PAGES for line in page.read_text().splitlines())
  directives = sum(page.read_text().count('\n```{') for page in PAGES)
  assert fences == 2 * (directives + sum(len(_BLOCK.findall(page.read_text())) for page in PAGES))


def test_builds_without_a_warning_and_documents_every_public_name(tmp_path):
  pytest.importorskip('sphinx', reason='the extra "docs" is not installed')
  command = ['--fail-on-warning', '--keep-going', '--quiet', ROOT / 'docs', tmp_path / 'site']
  done = subprocess.run([sys.executable, '-m', 'sphinx', *command], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  api = ''.join(page.read_text() for page in (tmp_path / 'site' / 'api').glob('*.html'))
  assert len(PUBLIC) > 30
  assert [name for name in PUBLIC if f'id="vrl_jax.{name}"' not in api] == []


# docs/architecture.md.

_ARCHITECTURE = (ROOT / 'docs' / 'architecture.md').read_text()
_HOP = re.compile(r'`([\w/]+\.py)`: `([\w.]+)`')


def _defines(path, name):
  """Whether a file defines a function, class or method; methods and nested functions are dotted names."""
  body = [ast.parse((ROOT / path).read_text())]
  for part in name.split('.'):
    children = [child for node in body for child in node.body]
    body = [child for child in children if isinstance(child, _DEFINITIONS) and child.name == part]
  return bool(body)


_DEFINITIONS = ast.FunctionDef | ast.ClassDef


def test_architecture_lists_the_rooms_in_import_order():
  rooms = re.findall(r'^\| `vrl_jax/(\w+)(?:/|\.py)` \|', _ARCHITECTURE, re.MULTILINE)
  assert rooms == list(ROOMS)


def test_architecture_journeys_are_short_and_name_existing_functions():
  journeys = re.findall(r'^## From .*?(?=^## |\Z)', _ARCHITECTURE, re.MULTILINE | re.DOTALL)
  hops = [re.findall(r'^\d+\. ', journey, re.MULTILINE) for journey in journeys]
  assert len(journeys) == 3 and all(5 <= len(steps) <= 12 for steps in hops)
  named = [_HOP.findall(journey) for journey in journeys]
  assert all(len(pairs) >= len(steps) for pairs, steps in zip(named, hops))
  assert [pair for pairs in named for pair in pairs if not _defines(*pair)] == []


def test_architecture_names_existing_files():
  paths = set(re.findall(r'`([\w/]+\.py)`', _ARCHITECTURE))
  assert len(paths) > 10 and [path for path in paths if not (ROOT / path).is_file()] == []
