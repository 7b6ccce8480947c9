"""The pages of docs/: they build without a warning, and all that they tell the reader to run is run here."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted((ROOT / 'docs').glob('*.md'))
_BLOCK = re.compile(r'^```(\w+)\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_KINDS = {'python', 'console'}


def _blocks(page):
  """(language, text) of every block of code that is to be run."""
  blocks = _BLOCK.findall(page.read_text())
  return [(kind, text) for kind, text in blocks if 'not run' not in text.splitlines()[0]]


def _script(page, folder):
  """One Python program that does what the page says; blocks that begin with a file's name are written to it."""
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


@pytest.mark.parametrize('page', [page for page in PAGES if _blocks(page)], ids=lambda page: page.stem)
def test_what_it_says_runs(page, tmp_path):
  for name in ('launch.py', 'configs'):
    (tmp_path / name).symlink_to(ROOT / name)
  script = tmp_path / f'page_{page.stem}.py'
  script.write_text(_script(page, tmp_path))
  env = {name: value for name, value in os.environ.items() if name not in ('PJRT_NPROC', 'XLA_FLAGS')}  # conftest's
  env['PATH'] = f'{pathlib.Path(sys.executable).parent}:{env["PATH"]}'
  done = subprocess.run([sys.executable, script.name], cwd=tmp_path, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_blocks_are_of_a_kind_that_is_run():
  kinds = {kind for page in PAGES for kind, _ in _BLOCK.findall(page.read_text())}
  assert kinds == _KINDS
  fences = sum(line.startswith('```') for page in PAGES for line in page.read_text().splitlines())
  directives = sum(page.read_text().count('\n```{') for page in PAGES)
  assert fences == 2 * (directives + sum(len(_BLOCK.findall(page.read_text())) for page in PAGES))


def test_it_builds_without_a_warning(tmp_path):
  pytest.importorskip('sphinx', reason='the extra "docs" is not installed')
  command = ['--fail-on-warning', '--keep-going', '--quiet', ROOT / 'docs', tmp_path / 'site']
  done = subprocess.run([sys.executable, '-m', 'sphinx', *command], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  api = (tmp_path / 'site' / 'api.html').read_text()
  for name in ('vrl_sgd', 'as_optax', 'with_outer_optimizer'):
    assert f'id="vrl_jax.{name}"' in api
