"""Folders of runs that are damaged or another's, through the real command line: one line, and nothing changed."""

import json
import shutil

import pytest
from inprocess import compiled_once as compiled_once
from launches import CONFIG
from refusals import refused

from vrl_jax.launching import main

SHORT = ('--config.steps=8', '--config.compilation_cache=False')


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A finished run, to be copied and damaged."""
  folder = tmp_path_factory.mktemp('finished') / 'run'
  assert main(['launch.py', f'--config={CONFIG}', f'--workdir={folder}', *SHORT]) == 0
  return folder


def rewrite(name, change):
  def damage(folder):
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))

  return damage


def unfinished(damage):
  def damage_it(folder):
    (folder / 'summary.json').unlink()
    damage(folder)

  return damage_it


def every_checkpoint(folder):
  for path in (folder / 'checkpoints').rglob('*'):
    if path.is_file():
      path.write_bytes(b'')


FOLDERS = {
  'another config': (rewrite('config.json', lambda c: c.update(momentum=0.25)), 'momentum=0.25 there and 0.5 now', 2),
  'a field less': (rewrite('config.json', lambda c: c.pop('period')), 'period=None there and 4 now', 2),
  'a config.json that is no JSON': (
    lambda f: (f / 'config.json').write_text('{"task": '),
    'config.json: cannot be read',
    2,
  ),
  'a config.json that is a list': (lambda f: (f / 'config.json').write_text('[1]'), 'not an object', 2),
  'a config.json that is a folder': (
    lambda f: ((f / 'config.json').unlink(), (f / 'config.json').mkdir()),
    'config.json: cannot be read',
    2,
  ),
  'a config.json of bytes': (lambda f: (f / 'config.json').write_bytes(b'\xff\xfe'), 'config.json: cannot be read', 2),
  'no config.json': (lambda f: (f / 'config.json').unlink(), 'holds other results and no config.json', 2),
  'a summary that is no JSON': (
    lambda f: (f / 'summary.json').write_text('finished'),
    'summary.json: cannot be read',
    2,
  ),
  'a summary without a status': (lambda f: (f / 'summary.json').write_text('{}'), "no 'status'", 2),
  'a summary of another kind': (rewrite('summary.json', lambda s: s.update(status='diverged')), "no 'message'", 2),
  'metrics that are no JSON': (
    unfinished(lambda f: (f / 'metrics.jsonl').write_text('step 0\nstep 8\n')),
    'metrics.jsonl: line 1 is damaged',
    3,
  ),
  'metrics of fewer steps': (
    unfinished(lambda f: (f / 'metrics.jsonl').write_text('')),
    'metrics.jsonl: the lines up to step 8 are not those of the run, see step 0',
    3,
  ),
  'checkpoints that are all empty': (unfinished(every_checkpoint), 'step 8 cannot be read', 3),
}


@pytest.mark.parametrize('case', FOLDERS)
def test_damaged_folders(case, finished, tmp_path, capfd):
  damage, told, status = FOLDERS[case]
  shutil.copytree(finished, tmp_path / 'run')
  damage(tmp_path / 'run')
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/run', *SHORT], told, tmp_path, capfd, status)


def test_a_sweep_in_the_folder_of_a_run_and_a_run_in_that_of_a_sweep(finished, tmp_path, capfd):
  shutil.copytree(finished, tmp_path / 'run')
  text = 'from tests.eight_quadratics import get_config as base\ndef get_config():\n  config = base()\n'
  (tmp_path / 'sweep.py').write_text(text + '  config.sweep = ({"name": "a"},)\n  return config\n')
  refused([f'--config={tmp_path}/sweep.py', f'--workdir={tmp_path}/run'], 'holds a single run', tmp_path, capfd)
  (tmp_path / 'swept').mkdir()
  (tmp_path / 'swept' / 'sweep.json').write_text('{}')
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/swept'], 'holds other results', tmp_path, capfd)
