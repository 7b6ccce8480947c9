"""README.md: its snippet and its commands run, and the files that it names exist."""

import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys

import flax
import flax.linen as nn
import numpy as np
import optax
import pytest

import vrl_jax
from vrl_jax import ALGORITHMS

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / 'README.md').read_text()
COMMANDS = [
  line.split('#')[0].strip() for block in re.findall(r'```sh\n(.*?)```', README, re.S) for line in block.splitlines()
]
COMMANDS += re.findall(r'`(make [\w-]+|python -m vrl_jax\.tools\.(?:communication|checkpoint) [^`]+)`', README)


def _runs(program, folder):
  env = {name: value for name, value in os.environ.items() if name not in ('PJRT_NPROC', 'XLA_FLAGS')}  # conftest's
  done = subprocess.run(['bash', '-ec', program], cwd=folder, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout


def test_the_snippet_reaches_the_optimum(capsys):
  (snippet,) = re.findall(r'```python\n(.*?)```', README, re.S)
  exec(snippet, {})
  assert capsys.readouterr().out.startswith('[1.66666')


def test_the_call_of_fit_runs(tmp_path, monkeypatch):
  (call,) = re.findall(r'```py\n(.*?)```', README, re.S)
  monkeypatch.chdir(tmp_path)
  y = np.arange(320) % 4
  names = {'model': nn.Dense(4), 'x': np.eye(4)[y], 'y': y}
  names.update(vrl_jax=vrl_jax, optax=optax, flax=flax, np=np)
  exec(call, names)
  logits = names['model'].apply({'params': names['result'].params}, names['x'])
  assert (names['classes'] == logits.argmax(axis=-1)).all() and len(set(names['classes'].tolist())) > 1
  named = re.findall(r'\.(\w+)', call.partition('#')[2].splitlines()[0])
  assert (tmp_path / 'model.npz').exists() and set(named) == {'params', 'history', 'plot'}
  assert all(hasattr(names['result'], name) for name in named)


def test_the_diff_is_that_of_the_example():
  """The example has the old lines in comments, each before the line that replaces it, if one does."""
  (diff,) = re.findall(r'```diff\n(.*?)```', README, re.S)
  lines = [line.strip() for line in (ROOT / 'examples' / 'flax_loop.py').read_text().splitlines()]
  shown = [(line[0], line[1:].strip()) for line in diff.splitlines()]
  old = [line.removeprefix('# was: ') for line in lines if line.startswith('# was: ')]
  assert [line for sign, line in shown if sign == '-'] == old and len(old) == 2
  assert [line for sign, line in shown if sign == '+'] == [line for line in lines if 'as_optax' in line]


def test_commands_run_in_order(tmp_path):
  for name in ('launch.py', 'configs'):
    (tmp_path / name).symlink_to(ROOT / name)
  (tmp_path / '.venv').symlink_to(sys.prefix)  # as if make had set it up
  out = _runs('\n'.join(command for command in COMMANDS if not command.startswith(('make', 'pip'))), tmp_path)
  assert 'distance_to_optimum' in out and '± ' in out and 'after the steps' in out
  (page,) = re.findall(r'`(runs/\S+\.html)`', README)
  assert '<h2>Final metrics</h2>' in (tmp_path / page).read_text()
  assert (tmp_path / 'quadratic.npz').exists()


@pytest.mark.parametrize(
  'target', sorted({shlex.split(command)[1] for command in COMMANDS if command.startswith('make')})
)
def test_make_targets_exist(target):
  assert re.search(rf'^{target}:', (ROOT / 'Makefile').read_text(), re.M)


def test_named_files_and_modules_exist():
  paths = re.findall(r'[`(]([\w/]+(?:\.(?:py|md|ipynb|png)|/))[`:)#]', README)
  assert len(paths) > 15 and [path for path in paths if not (ROOT / path).exists()] == []
  for path, anchor in re.findall(r'\(([\w/]+\.md)#([\w-]+)\)', README):
    titles = re.findall(r'^#+ (.*)', (ROOT / path).read_text(), re.M)
    assert anchor in [title.lower().replace(' ', '-') for title in titles], f'{path} has no heading {anchor}'
  for module in re.findall(r'`python -m ([\w.]+)', README):
    assert importlib.util.find_spec(module), module


@pytest.mark.slow
@pytest.mark.skipif('VRL_JAX_DATA' not in os.environ, reason='VRL_JAX_DATA is not set')
def test_prepare_data_command_runs(tmp_path):
  (command,) = re.findall(r'`python (-m vrl_jax.tools.prepare_data [^`]+)`', README)
  (tmp_path / 'data').symlink_to(os.environ['VRL_JAX_DATA'])
  assert '60,000 training' in _runs(f'{sys.executable} {command}', tmp_path)


def test_table_lists_every_algorithm():
  rows = [row for row in README.splitlines() if row.startswith('| `')]
  named = {name for row in rows for name in re.findall(r'`(\w+)`', row.split('|')[1])}
  assert set(ALGORITHMS) <= named
