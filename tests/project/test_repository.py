"""Every mention of the repository is that of `Repository` in pyproject.toml."""

import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
_SUFFIXES = ('.md', '.py', '.ipynb', '.toml', '.cff', '.yml')
FILES = [ROOT / 'pyproject.toml', ROOT / 'README.md', ROOT / 'CITATION.cff', *sorted((ROOT / 'notebooks').glob('*.*'))]
FILES += [path for path in sorted((ROOT / 'docs').rglob('*')) if path.suffix in _SUFFIXES]


def _slugs(folder=ROOT):
  """(file, owner/name) of every mention of a repository called vrl-jax, on GitHub or Colab."""
  paths = [folder / path.relative_to(ROOT) for path in FILES]
  found = [
    (path.name, slug) for path in paths for slug in re.findall(r'github(?:\.com)?/([\w.-]+/[\w-]+)', path.read_text())
  ]
  return [(name, slug) for name, slug in found if slug.endswith('/' + _own(folder).split('/')[1])]


def _own(folder=ROOT):
  url = tomllib.loads((folder / 'pyproject.toml').read_text())['project']['urls']['Repository']
  return url.removeprefix('https://github.com/')


def test_every_mention_is_the_one_of_pyproject():
  found = _slugs()
  assert {slug for _, slug in found} == {_own()}, 'run `make repository SLUG=owner/name`'
  assert {'README.md', 'index.md', '01_why_local_sgd_drifts.ipynb'} <= {name for name, _ in found}


@pytest.mark.skipif(not shutil.which('git'), reason='git is not installed')
def test_one_command_replaces_all_of_them(tmp_path):
  for path in (*FILES, ROOT / 'Makefile'):
    target = tmp_path / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
  run = lambda *command: subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
  before = _slugs(tmp_path)
  run('git', 'init', '-q')
  run('git', 'add', '.')
  run('make', 'repository', 'SLUG=some-one/vrl-jax2')
  assert _own(tmp_path) == 'some-one/vrl-jax2'
  assert _slugs(tmp_path) == [(name, 'some-one/vrl-jax2') for name, _ in before]
