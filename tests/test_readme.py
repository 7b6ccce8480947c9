"""README.md says what is true: its snippet and its commands run, and what it names is there."""

import importlib.util
import pathlib
import re
import shlex

import pytest

from vrl_jax import ALGORITHMS, launching

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / 'README.md').read_text()
COMMANDS = [
  line.split('#')[0].strip() for block in re.findall(r'```sh\n(.*?)```', README, re.S) for line in block.splitlines()
]


def test_the_snippet_reaches_the_optimum(capsys):
  (snippet,) = re.findall(r'```python\n(.*?)```', README, re.S)
  exec(snippet, {})
  assert capsys.readouterr().out.startswith('[1.66666')


def test_the_quadratic_command_runs(tmp_path, monkeypatch):
  (command,) = [c for c in COMMANDS if 'configs/quadratic.py' in c]
  argv = [arg.replace('runs/', f'{tmp_path}/') for arg in shlex.split(command)[1:]]
  monkeypatch.chdir(ROOT)
  assert launching.main(argv) == 0
  assert (tmp_path / 'quadratic' / 'summary.json').exists()


@pytest.mark.parametrize('command', COMMANDS)
def test_commands_name_what_is_there(command):
  words = shlex.split(command)
  if words[0] == 'make':
    assert re.search(rf'^{words[1]}:', (ROOT / 'Makefile').read_text(), re.M)
  elif words[1] == '-m':
    assert importlib.util.find_spec(words[2])
  else:
    assert (ROOT / words[1]).exists() and (ROOT / words[words.index('--config') + 1]).exists()


def test_files_and_modules_it_mentions_exist():
  for path in re.findall(r'`((?:configs|docs|notebooks|vrl_jax)/[\w/.]+)`', README):
    assert (ROOT / path).exists(), path
  for module in re.findall(r'`python -m ([\w.]+)', README):
    assert importlib.util.find_spec(module), module


def test_its_table_has_every_algorithm():
  rows = [row for row in README.splitlines() if row.startswith('| `')]
  named = {name for row in rows for name in re.findall(r'`(\w+)`', row.split('|')[1])}
  assert set(ALGORITHMS) <= named
