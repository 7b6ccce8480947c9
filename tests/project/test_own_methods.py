"""A project outside of the package: its own algorithm, optimizer and schedule in one file, named by the config."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import assert_same_run, contents, one_line, summary

import vrl_jax
from vrl_jax import report
from vrl_jax.errors import Interrupted, UserError
from vrl_jax.report import series
from vrl_jax.tools import checkpoint, communication

LAUNCH = pathlib.Path(__file__).parents[2] / 'launch.py'
METHODS = """
import jax
import jax.numpy as jnp
import optax
import vrl_jax


def half_average(inner, *, share: float = 0.5, buffers: str = 'keep', axis_name=vrl_jax.AXIS):
  '''Args:
    share: how far each model moves to the mean. The rest stays.
  '''
  if not 0 < share <= 1:
    raise ValueError(f'share={share}, must be in (0, 1]')
  local = vrl_jax.local_sgd(inner, buffers=buffers, axis_name=axis_name)

  def communicate(params, state):
    mean, state = local.communicate(params, state)
    return jax.tree.map(lambda x, m: x + share * (m - x), params, mean), state

  def consensus(params, state):
    return local.communicate(params, state)[0]

  return local._replace(communicate=communicate, consensus=consensus)


def make_optimizer(learning_rate, *, scale):
  return optax.chain(optax.scale(scale), optax.sgd(learning_rate))


def inverse(*, start):
  return lambda step: start / (1 + step)


def of_period(inner, *, period=3, axis_name=vrl_jax.AXIS):
  return vrl_jax.local_sgd(inner, axis_name=axis_name)


def of_alpha(inner, *, alpha=0.5, axis_name=vrl_jax.AXIS):
  return vrl_jax.local_sgd(inner, axis_name=axis_name)


def of_noise(inner, *, noise=0.5, axis_name=vrl_jax.AXIS):
  return vrl_jax.local_sgd(inner, axis_name=axis_name)


def no_default(inner, *, mu, axis_name=vrl_jax.AXIS):
  return vrl_jax.local_sgd(inner, axis_name=axis_name)


def no_algorithm(inner, *, axis_name=vrl_jax.AXIS):
  return inner


def breaks(inner, *, axis_name=vrl_jax.AXIS):
  local = vrl_jax.local_sgd(inner, axis_name=axis_name)
  return local._replace(communicate=lambda params, state: (params['w'], state))


def forgets(inner, *, axis_name=vrl_jax.AXIS):
  local = vrl_jax.local_sgd(inner, axis_name=axis_name)
  return local._replace(communicate=lambda params, state: (params, (state, params)))


def narrows(inner, *, axis_name=vrl_jax.AXIS):
  local = vrl_jax.local_sgd(inner, axis_name=axis_name)
  return local._replace(consensus=lambda params, state: jax.tree.map(lambda x: x.astype(jnp.float16), params))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
  (tmp_path / 'my_methods.py').write_text(METHODS)
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  return tmp_path


def config(**fields):
  config = vrl_jax.load_config('quadratic')
  config.update(steps=80, log_every_step=False, eval_every=20.0, checkpoint_every=1)
  config.update(algorithm='my_methods:half_average', **fields)
  return config


def test_launch(project):
  """A user's story in two commands: they train, resume nothing, and see the options of their algorithm."""
  flags = ['--config.algorithm=my_methods:half_average', '--config.share=0.25', '--config.steps=40']
  flags += ['--config.optimizer=my_methods:make_optimizer', "--config.optimizer_kwargs={'scale': 0.5}"]
  flags += ['--config.schedule=my_methods:inverse', "--config.schedule_kwargs={'start': 'learning_rate'}"]
  launch = lambda *more: subprocess.run(
    [sys.executable, LAUNCH, '--config=quadratic', '--workdir=runs/mine', *flags, *more],
    cwd=project,
    env={name: value for name, value in os.environ.items() if name != 'PYTHONPATH'} | {'VRL_JAX_CACHE': str(project)},
    capture_output=True,
    text=True,
  )
  done = launch()
  assert done.returncode == 0, done.stderr
  assert 'my_methods:half_average on quadratic: 2 workers' in done.stdout
  stored = json.loads((project / 'runs' / 'mine' / 'config.json').read_text())
  assert (stored['share'], stored['optimizer_kwargs']) == (0.25, {'scale': 0.5})
  done = launch('--config.shere=0.3')
  assert (done.returncode, one_line(done.stderr)) == (
    2,
    "error: the config has no field 'shere'; did you mean 'share'?",
  )


def test_resume_export_and_communication(project, monkeypatch, capsys):
  fields = {'optimizer': 'my_methods:make_optimizer', 'optimizer_kwargs': {'scale': 0.5}}
  fields |= {'schedule': 'optax.exponential_decay'}
  fields |= {'schedule_kwargs': {'init_value': 'learning_rate', 'transition_steps': 'steps', 'decay_rate': 0.5}}
  vrl_jax.train_and_evaluate(config(**fields), 'uninterrupted')
  with signal_at(monkeypatch, 40), pytest.raises(Interrupted):
    vrl_jax.train_and_evaluate(config(**fields), 'stopped')
  assert vrl_jax.train_and_evaluate(config(**fields), 'stopped')['resumed_from_step'] == 40
  assert_same_run('stopped', 'uninterrupted')
  before = contents(project / 'stopped')
  different = config(**fields)
  different.share = 0.25
  with pytest.raises(UserError, match='share=0.5 there and 0.25 now'):
    vrl_jax.train_and_evaluate(different, 'stopped')
  assert contents(project / 'stopped') == before
  assert checkpoint.main(['stopped', '--export', 'model.npz']) == 0
  flags = ['--config=quadratic', '--config.algorithm=my_methods:half_average', '--config.devices=2']
  assert communication.main(flags) == 0
  assert 'Half-Average' in (out := capsys.readouterr().out)
  assert out.splitlines()[-1].split()[-8:] == '8 B 8 B 8 B 8 B'.split()
  (project / 'my_methods.py').unlink()
  sys.modules.pop('my_methods')
  assert checkpoint.main(['stopped', '--export', 'again.npz']) == 2
  assert "algorithm='my_methods:half_average': there is no module 'my_methods' in" in one_line(capsys.readouterr().err)


def test_sweep_and_report(project):
  """Beside a registered algorithm; an entry sets an option that only its algorithm has."""
  both = config(init_epochs=10.0)
  both.sweep = (
    {'name': 'S-SGD', 'algorithm': 's_sgd'},
    {'name': 'half'},
    {'name': 'quarter', 'share': 0.25},
  )
  result = vrl_jax.run_sweep(both, 'runs')
  assert result.diverged == []
  configs = {name: json.loads((project / 'runs' / name / 'config.json').read_text()) for name in ('S-SGD', 'quarter')}
  assert 'share' not in configs['S-SGD'] and configs['quarter']['share'] == 0.25
  assert len(list((project / 'runs').glob('initial_*'))) == 1  # common initial weights
  assert all(f'"{name}"' in result.files['report'].read_text() for name in ('half', 'quarter'))
  (project / 'runs' / 'sweep.json').unlink()  # without names, the option tells the runs apart
  labels = [line.label for line in series.make_lines(report.read_any(project / 'runs').runs)]
  assert labels == ['S-SGD', 'Half-Average, share = 0.5', 'Half-Average, share = 0.25']
  assert all(summary(project / 'runs' / name)['status'] == 'finished' for name in ('S-SGD', 'half', 'quarter'))


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'algorithm': 'my_methodz:f'}, "algorithm='my_methodz:f': there is no module 'my_methodz' in "),
    ({'algorithm': 'my_methods:half_averag'}, "has no 'half_averag'; did you mean 'half_average'?"),
    ({'algorithm': 'my_methods:METHODS'}, "the module 'my_methods' has no 'METHODS'"),
    ({'algorithm': 'math:pi'}, "algorithm='math:pi': is a float, must be a function (inner, *, axis_name, ...)"),
    ({'algorithm': 'my_methods:make_optimizer'}, 'must be a function (inner, *, axis_name, ...) with a default for'),
    ({'algorithm': 'my_methods:no_default'}, 'with a default for every option, not (inner, mu, axis_name)'),
    ({'algorithm': 'my_methods:no_algorithm'}, 'must return a vrl_jax.Algorithm'),
    ({'algorithm': 'my_methods:of_period'}, "its option 'period' is already a config field; rename it"),
    (
      {'algorithm': 'my_methods:of_alpha'},
      'its option alpha=0.5 is already a config field, of easgd, with the default',
    ),
    ({'algorithm': 'my_methods:of_noise'}, "its option 'noise' is already a field of the task; rename it"),
    ({'algorithm': 'my_methods:breaks'}, "algorithm='my_methods:breaks' raises"),
    ({'algorithm': 'my_methods:forgets'}, 'communicate returns another state than it takes, '),
    (
      {'algorithm': 'my_methods:narrows'},
      'consensus returns other parameters than it takes, the value: float16[1] and',
    ),
    ({'share': 2.0}, 'raises ValueError: share=2.0, must be in (0, 1] (my_methods.py, line 13)'),
    ({'share': 'much'}, "share='much', must be a number"),
    ({'alpha': 0.1}, "alpha=0.1 is not an option of algorithm='my_methods:half_average' (only of easgd)"),
    ({'algorithm': 'vrl_sgd', 'optimizer': 'optax.lion'}, 'in a config --config.algorithm=vrl_adaptive'),
  ],
)
def test_mistakes_are_one_line(project, fields, message):
  wrong = config()
  for name, value in fields.items():
    wrong[name] = value
  with pytest.raises(UserError) as error:
    vrl_jax.train_and_evaluate(wrong, 'run')
  assert message in str(error.value)
  assert '\n' not in str(error.value)
  assert not (project / 'run').exists()
