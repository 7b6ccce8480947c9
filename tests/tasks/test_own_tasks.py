"""Tasks from outside the package: by dotted path, and as objects."""

import importlib
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import lines
from support.refusals import refused

import vrl_jax
from vrl_jax.cli.launch import main
from vrl_jax.errors import Interrupted, UserError
from vrl_jax.tasks import loss_task

MODULE = """
import numpy as np
from vrl_jax.tasks import Field, Role, loss_task, number

FIELDS = (Field('spread', 1.0, float, Role.PROBLEM, 'distance of the centres', number(positive=True)),)

def make_task(config):
  x = (config.spread * np.repeat(np.arange(4), 8)).astype(np.float32)
  def loss(params, batch):
    return (params - batch) ** 2
  return loss_task(loss, params=np.float32(0), train=x, labels=np.repeat(np.arange(4), 8))
"""
CONFIG = """
import vrl_jax

def get_config():
  config = vrl_jax.task_config('own_module:make_task')
  config.update(workers=4, period=4, batch_size=2, learning_rate=0.1, epochs=5.0, compilation_cache=False)
  return config
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """A user's folder, with a task, its config, and a place for runs."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [*sys.path])
  (tmp_path / 'own_module.py').write_text(MODULE)
  (tmp_path / 'own_config.py').write_text(CONFIG)
  yield tmp_path
  sys.modules.pop('own_module', None)


def test_a_task_is_found_from_the_current_folder(folder, capsys):
  assert main(['launch.py', '--config=own_config.py', '--workdir=run', '--config.spread=2.0']) == 0
  summary = json.loads((folder / 'run' / 'summary.json').read_text())
  assert summary['train_loss'] == pytest.approx(5, rel=0.05)  # the variance of 0, 2, 4, 6
  assert 'vrl_sgd on own_module:make_task: 4 workers' in capsys.readouterr().out


def test_help_lists_the_fields_of_the_task(folder, capsys):
  assert main(['launch.py', '--config=own_config.py', '--help']) == 0
  shown = capsys.readouterr().out
  assert '--config.spread=1.0 ' in shown and 'distance of the centres' in shown


def test_without_a_workdir(folder):
  assert main(['launch.py', '--config=own_config.py', '--config.epochs=1']) == 0
  (run,) = (folder / 'runs').iterdir()
  assert run.name.endswith('_own_module.make_task')


RETURNS = '  return loss_task('
WRONG = {
  'no such module': ('own_module:', 'missing_module:', "there is no module 'missing_module' in "),
  'no such function': (
    'make_task',
    'make_tusk',
    "the module 'own_module' has no 'make_tusk'; did you mean 'make_task'?",
  ),
  'no function': (
    'own_module:make_task',
    'own_module:FIELDS',
    "task='own_module:FIELDS' is a tuple, must be a function",
  ),
  'a task without a folder': ('own_module:make_task', 'own', "task='own', must be one of lenet_mnist, "),
}


@pytest.mark.parametrize('case', WRONG)
def test_a_wrong_path(case, folder, capfd):
  old, new, message = WRONG[case]
  (folder / 'own_config.py').write_text(CONFIG.replace(old, new))
  refused(['--config=own_config.py', '--workdir=run'], message, folder, capfd)


BROKEN = {
  'raises on import': ('import numpy', 'import nothing_here\nimport numpy', "needs 'nothing_here', which is missing"),
  'raises': (RETURNS, '  x[100]\n' + RETURNS, 'raises IndexError: index 100 is out of bounds'),
  'names the line': (RETURNS, '  x[100]\n' + RETURNS, '(own_module.py, line 11)'),
  'returns no task': (
    RETURNS,
    '  return [] and loss_task(',
    "task='own_module:make_task' returns a list, must return a vrl_jax.Task",
  ),
  'a loss that raises': ('(params - batch)', 'params.wait(batch)', 'has no attribute wait (own_module.py, line 10)'),
  'a loss of the wrong shape': (') ** 2', '[None]) ** 2', 'metrics returns '),
  'float labels': ('8))\n', '8) / 2)\n', 'labels are float64 [32], must be integers [32]'),
  'too few labels': ('np.arange(4), 8))\n', 'np.arange(4), 4))\n', 'labels are int64 [16], must be integers [32]'),
  'negative labels': ('labels=', 'labels=-', 'labels are from -3 to 0, must be from 0'),
  'no data': ('train=x', 'train={}', 'train must be a tree of NumPy arrays [examples, ...]'),
  'unequal data': ('train=x', 'train=(x, x[1:])', 'train: its arrays have 31 and 32 examples, must have equally many'),
  'another test': ('train=x', 'train=x, test=x[:, None]', 'an example of train has the shape (), one of test (1,)'),
  'a wrong FIELDS': ('FIELDS = (', 'FIELDS = (1, ', 'FIELDS must be a tuple of vrl_jax.tasks.Field'),
  'a taken field': ("'spread'", "'period'", "FIELDS has 'period', which is a field of every config"),
  'a wrong value': ('1.0, float', '-1.0, float', 'spread=-1.0, must be a number greater than 0'),
}


@pytest.mark.parametrize('case', BROKEN)
def test_a_broken_task(case, folder, monkeypatch, capfd):
  monkeypatch.setattr(sys, 'dont_write_bytecode', True)
  old, new, message = BROKEN[case]
  assert old in MODULE
  (folder / 'own_module.py').write_text(MODULE.replace(old, new))
  refused(['--config=own_config.py', '--workdir=run'], message, folder, capfd)


# A task as an object.


def task(power=2, shift=0.0):
  data = {'c': np.repeat(np.arange(4), 8) + shift}  # float64, as NumPy makes it
  loss = lambda x, batch: jnp.mean(jnp.abs(x['x'] - batch['c']) ** power)
  return loss_task(loss, params={'x': np.float32(9)}, train=data, labels=np.repeat(np.arange(4), 8))


def config(**fields):
  config = vrl_jax.default_config()
  config.update(task='mine', workers=4, period=4, batch_size=2, learning_rate=0.1, epochs=4.0, checkpoint_every=1)
  config.update(fields)
  return config


@pytest.mark.parametrize('feed', ['device', 'host'])
def test_a_given_task_is_trained(feed, tmp_path):
  summary = vrl_jax.train_and_evaluate(config(feed=feed), tmp_path, task=task())
  assert summary['status'] == 'finished' and summary['train_loss'] == pytest.approx(1.25, rel=0.2)
  assert not any(name.startswith('test_') for name in summary)


def test_a_given_task_resumes_bit_for_bit(tmp_path, monkeypatch, capsys):
  vrl_jax.train_and_evaluate(config(), tmp_path / 'whole', task=task())
  with signal_at(monkeypatch, 8), pytest.raises(Interrupted):
    vrl_jax.train_and_evaluate(config(), tmp_path / 'stopped', task=task())
  assert vrl_jax.train_and_evaluate(config(), tmp_path / 'stopped', task=task())['resumed_from_step'] == 8
  assert lines(tmp_path / 'stopped') == lines(tmp_path / 'whole')
  assert vrl_jax.train_and_evaluate(config(), tmp_path / 'whole', task=task())['status'] == 'finished'
  assert 'already finished at step 16' in capsys.readouterr().out


@pytest.mark.parametrize('other', [task(power=4), task(shift=1.0), None], ids=['loss', 'data', 'none'])
def test_another_task_does_not_go_on_with_a_run(other, tmp_path):
  mine = config() if other else config(task='quadratic')
  vrl_jax.train_and_evaluate(mine, tmp_path, task=task())
  with pytest.raises(UserError, match='holds a run of another task .* choose another --workdir'):
    vrl_jax.train_and_evaluate(mine, tmp_path, task=other)


def test_a_sweep_over_a_given_task(tmp_path):
  sweep = config(sweep=({'name': 'Local SGD', 'algorithm': 'local_sgd'}, {'name': 'VRL-SGD'}))
  result = vrl_jax.run_sweep(sweep, tmp_path, task=task())
  assert result.diverged == [] and result.files['report'].exists()


def test_what_is_no_task_is_refused_and_leaves_nothing(tmp_path):
  with pytest.raises(UserError, match='^task: is a dict, must be a vrl_jax.Task$'):
    vrl_jax.train_and_evaluate(config(), tmp_path / 'run', task={})
  assert list(tmp_path.iterdir()) == []


def test_examples_that_are_left_out_are_told_without_labels_too(tmp_path, capsys):
  unlabelled = loss_task(lambda x, batch: (x - batch) ** 2, np.float32(0), train=np.arange(33.0))
  vrl_jax.train_and_evaluate(config(epochs=1.0), tmp_path, task=unlabelled)
  assert '\n1 examples are left out' in (out := capsys.readouterr().out) and 'worker' not in out.split('\n')[1]


def test_the_public_names_of_tasks():
  tasks = importlib.import_module('vrl_jax.tasks')
  assert vrl_jax.tasks is tasks and 'tasks' in dir(vrl_jax)
  assert all(getattr(tasks, name) is not None for name in tasks.__all__) and set(tasks.__all__) <= set(dir(tasks))
  assert jax.tree.leaves(task().train)[0].dtype == np.float64
