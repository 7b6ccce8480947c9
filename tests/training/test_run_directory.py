"""Damaged or foreign run directories, through the command line: one line, and nothing is changed."""

import json
import shutil

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.launches import CONFIG, contents
from support.refusals import refused

from vrl_jax.cli.launch import main

SHORT = ('--config.steps=8', '--config.compilation_cache=False')


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A finished run, which the tests copy and damage."""
  directory = tmp_path_factory.mktemp('finished') / 'run'
  assert main(['launch.py', f'--config={CONFIG}', f'--workdir={directory}', *SHORT]) == 0
  return directory


def rewrite(name, change):
  def damage(directory):
    content = json.loads((directory / name).read_text())
    change(content)
    (directory / name).write_text(json.dumps(content))

  return damage


def unfinished(damage):
  def damage_unfinished(directory):
    (directory / 'summary.json').unlink()
    damage(directory)

  return damage_unfinished


def every_checkpoint(directory):
  for path in (directory / 'checkpoints').rglob('*'):
    if path.is_file():
      path.write_bytes(b'')


DAMAGE = {
  'another config': (rewrite('config.json', lambda c: c.update(momentum=0.25)), 'momentum=0.25 there and 0.5 now', 2),
  'a missing field': (rewrite('config.json', lambda c: c.pop('period')), 'period=None there and 4 now', 2),
  'config.json is not JSON': (
    lambda f: (f / 'config.json').write_text('{"task": '),
    'config.json: cannot be read',
    2,
  ),
  'config.json is nested too deeply': (
    lambda f: (f / 'config.json').write_text('[' * 100_000),
    'config.json: cannot be read',
    2,
  ),
  'config.json is a list': (lambda f: (f / 'config.json').write_text('[1]'), 'not an object', 2),
  'config.json is a directory': (
    lambda f: ((f / 'config.json').unlink(), (f / 'config.json').mkdir()),
    'config.json: cannot be read',
    2,
  ),
  'config.json is not text': (lambda f: (f / 'config.json').write_bytes(b'\xff\xfe'), 'config.json: cannot be read', 2),
  'given.json is nested too deeply': (
    unfinished(lambda f: (f / 'given.json').write_text('[' * 100_000)),
    'given.json: cannot be read',
    2,
  ),
  'no config.json': (lambda f: (f / 'config.json').unlink(), 'holds other results and no config.json', 2),
  'summary.json is not JSON': (
    lambda f: (f / 'summary.json').write_text('finished'),
    'summary.json: cannot be read',
    2,
  ),
  'summary.json without status': (lambda f: (f / 'summary.json').write_text('{}'), "no 'status'", 2),
  'summary.json of a divergence without message': (
    rewrite('summary.json', lambda s: s.update(status='diverged')),
    "no 'message'",
    2,
  ),
  'metrics.jsonl is not JSON': (
    unfinished(lambda f: (f / 'metrics.jsonl').write_text('step 0\nstep 8\n')),
    'metrics.jsonl: line 1 is damaged',
    3,
  ),
  'metrics.jsonl is empty': (
    unfinished(lambda f: (f / 'metrics.jsonl').write_text('')),
    'metrics.jsonl: the lines up to step 8 do not match the run (see step 0)',
    3,
  ),
  'all checkpoint files are empty': (unfinished(every_checkpoint), 'step 8 cannot be read', 3),
}


def test_half_written_files_of_a_killed_run_are_removed(finished, tmp_path):
  shutil.copytree(finished, tmp_path / 'run')
  for name in ('.summary.json.0123456789abcdef.tmp', '.initial_0.msgpack.fedcba9876543210.tmp'):
    (tmp_path / 'run' / name).write_text('{')
  assert main(['launch.py', f'--config={CONFIG}', f'--workdir={tmp_path}/run', *SHORT]) == 0
  assert contents(tmp_path / 'run') == contents(finished)


@pytest.mark.parametrize('case', DAMAGE)
def test_damaged_run_directory(case, finished, tmp_path, capfd):
  damage, message, status = DAMAGE[case]
  shutil.copytree(finished, tmp_path / 'run')
  damage(tmp_path / 'run')
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/run', *SHORT], message, tmp_path, capfd, status=status)


def test_a_sweep_in_the_directory_of_a_run_and_vice_versa(finished, tmp_path, capfd):
  shutil.copytree(finished, tmp_path / 'run')
  text = 'from tests.support.eight_quadratics import get_config as base\ndef get_config():\n  config = base()\n'
  (tmp_path / 'sweep.py').write_text(text + '  config.sweep = ({"name": "a"},)\n  return config\n')
  refused([f'--config={tmp_path}/sweep.py', f'--workdir={tmp_path}/run'], 'holds a single run', tmp_path, capfd)
  (tmp_path / 'swept').mkdir()
  (tmp_path / 'swept' / 'sweep.json').write_text('{}')
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/swept'], 'holds other results', tmp_path, capfd)
