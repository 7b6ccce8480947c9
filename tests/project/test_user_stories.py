"""What a newcomer does first, in a folder of their own: their model, their algorithm, their optimizer and schedule.

Each story runs here with the package of the checkout, in this process; the slow form runs it with the wheel, in an
environment that has no access to the checkout.
"""

import json
import pathlib
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
from support import wheel
from support.inprocess import shared_compilation_cache as shared_compilation_cache

from vrl_jax.cli.launch import main
from vrl_jax.tools import checkpoint

STORIES = pathlib.Path(__file__).parents[1] / 'support' / 'stories'


class Checkout:
  """Runs the programs in this process."""

  def __init__(self, capsys):
    self._capsys = capsys

  def run(self, folder, program, *args):
    del folder  # the current one
    args = [str(arg) for arg in args]
    if program == 'vrl-jax':
      status = main([program, *args])
    elif args[0] == '-m':
      assert args[1] == 'vrl_jax.tools.checkpoint'
      status = checkpoint.main(args[2:])
    else:
      runpy.run_path(args[0], run_name='__main__')
      status = 0
    return subprocess.CompletedProcess(args, status, *self._capsys.readouterr())


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
  folder = tmp_path_factory.mktemp('installed')
  return wheel.Installed(wheel.build(folder), folder)


@pytest.fixture(params=['checkout', pytest.param('wheel', marks=pytest.mark.slow)])
def package(request, capsys):
  return request.getfixturevalue('installed') if request.param == 'wheel' else Checkout(capsys)


@pytest.fixture
def project(tmp_path, monkeypatch):
  """A user's folder: `project(name, ...)` puts files into it."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [*sys.path])

  def add(*names):
    for name in names:
      shutil.copy(STORIES / name, tmp_path)
    return tmp_path

  yield add
  for path in STORIES.glob('*.py'):
    sys.modules.pop(path.stem, None)


def done(completed):
  assert completed.returncode == 0, completed.stdout + completed.stderr
  return completed.stdout


def read(path):
  return json.loads(path.read_text())


def test_a_model_and_data_with_a_report(package, project):
  folder = project('my_fit.py')
  code = [line for line in (folder / 'my_fit.py').read_text().splitlines() if line.strip()]
  assert len(code) <= 20
  out = done(package.run(folder, 'python', 'my_fit.py'))
  page = folder / out.splitlines()[-1]
  assert page == folder / 'runs' / 'fit' / 'report.html'
  text = page.read_text()
  assert 'VRL-SGD' in text and 'Local SGD' in text and 'dirichlet' in text
  summary = read(folder / 'runs' / 'fit' / 'VRL-SGD' / 'summary.json')
  assert summary['status'] == 'finished' and summary['train_accuracy'] > 0.5
  with np.load(folder / 'model.npz') as file:
    assert file['Dense_1/kernel'].shape == (4, 16)


def test_an_algorithm_in_one_file(package, project):
  folder = project('my_algorithm.py')
  command = ['--config=quadratic', '--workdir=runs/mine', '--config.algorithm=my_algorithm:partial_average']
  command += ['--config.share=0.25', '--config.log_every_step=False']
  out = done(package.run(folder, 'vrl-jax', *command, '--config.steps=40'))
  assert 'my_algorithm:partial_average on quadratic: 2 workers' in out
  assert read(folder / 'runs' / 'mine' / 'config.json')['share'] == 0.25
  assert '--config.share=0.5' in done(package.run(folder, 'vrl-jax', command[0], command[2], '--help'))
  longer = done(package.run(folder, 'vrl-jax', *command, '--config.steps=60'))
  assert 'from step 40' in longer and read(folder / 'runs' / 'mine' / 'summary.json')['step'] == 60
  done(package.run(folder, 'python', '-m', 'vrl_jax.tools.checkpoint', 'runs/mine', '--export', 'model.npz'))
  with np.load(folder / 'model.npz') as file:
    distance = read(folder / 'runs' / 'mine' / 'summary.json')['distance_to_optimum']
    assert abs(float(file['params'][0])) == pytest.approx(distance, rel=1e-6)


def test_an_optimizer_and_a_schedule_by_config(package, project):
  folder = project('my_config.py', 'my_optimizers.py')
  out = done(package.run(folder, 'vrl-jax', '--config=my_config.py', '--workdir=runs/mine'))
  assert 'vrl_sgd on quadratic: 2 workers' in out
  stored = read(folder / 'runs' / 'mine' / 'config.json')
  assert stored['optimizer_kwargs'] == {'scale': 0.5} and stored['schedule'] == 'my_optimizers:inverse_root'
  done(
    package.run(
      folder, 'vrl-jax', '--config=my_config.py', '--workdir=runs/other', "--config.optimizer_kwargs={'scale': 1.0}"
    )
  )
  ends = [read(folder / 'runs' / name / 'summary.json')['distance_to_optimum'] for name in ('mine', 'other')]
  assert ends[0] != ends[1]
