"""Whole runs whose workers are islands of devices: log lines, checkpoints, resuming on another arrangement."""

import flax.linen as nn
import numpy as np
import optax
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import checkpoint_steps, leaves, lines

import vrl_jax
from vrl_jax.engine.batch_stats import POLICIES
from vrl_jax.errors import Interrupted, UserError

Y = np.repeat(np.arange(4), 16)
X = (np.eye(8)[Y] + 0.3 * np.random.default_rng(0).normal(size=(64, 8))).astype(np.float32)
MODEL = nn.Sequential([nn.Dense(16), nn.relu, nn.Dense(4)])
STEPS = 24


def run(folder, **options):
  fields = {'workers': 4, 'period': 4, 'batch_size': 4, 'epochs': None, 'steps': STEPS, 'eval_every': 2}
  algorithm = vrl_jax.vrl_sgd(optax.sgd(0.1, momentum=0.5))
  return vrl_jax.fit(MODEL, (X, Y), algorithm=algorithm, test=(X[::3], Y[::3]), workdir=folder, **fields | options)


@pytest.fixture(scope='module')
def reference(tmp_path_factory):
  """A run without islands."""
  folder = tmp_path_factory.mktemp('reference') / 'run'
  run(folder, devices=2, quiet=True)
  return folder


def assert_close(folder, reference):
  """The log lines are equal up to rounding."""
  ours, theirs = lines(folder), lines(reference)
  assert [line.keys() for line in ours] == [line.keys() for line in theirs]
  for one, other in zip(ours, theirs):
    given = {name: value for name, value in one.items() if isinstance(value, (int, float))}
    np.testing.assert_allclose(
      list(given.values()), [other[name] for name in given], rtol=2e-4, atol=1e-6, err_msg=str(one)
    )


@pytest.mark.parametrize(
  ('options', 'said'),
  [
    (
      {'devices': 8, 'devices_per_worker': 4, 'island': 'sharded'},
      '8 cpu device(s) in islands of 4 (sharded), 24 steps',
    ),
    ({'devices_per_worker': 2, 'feed': 'host'}, '8 cpu device(s) in islands of 2 (replicated), 24 steps'),
    ({'devices': 4, 'devices_per_worker': 4}, '4 cpu device(s) in islands of 4 (replicated) (4 idle), 24 steps'),
  ],
)
def test_a_run_on_islands_has_the_log_lines_of_a_run_without(options, said, reference, tmp_path, capsys):
  result = run(tmp_path, **options)
  assert f'vrl_sgd on Sequential: 4 workers on {said}' in capsys.readouterr().out
  assert_close(tmp_path, reference)
  assert result.summary['devices_per_worker'] == options['devices_per_worker']
  assert [leaf[:3] for leaf in leaves(tmp_path, STEPS)] == [leaf[:3] for leaf in leaves(reference, STEPS)]


def test_a_run_is_resumed_exactly_on_the_same_islands_and_closely_on_others(reference, tmp_path, monkeypatch):
  sharded = {'devices': 8, 'devices_per_worker': 4, 'island': 'sharded', 'quiet': True, 'checkpoint_every': 1}
  run(tmp_path / 'whole', **sharded)
  for name, resumed in {
    'same': sharded,
    'other': sharded | {'devices_per_worker': 2},
    'none': sharded | {'devices': 1, 'devices_per_worker': 1, 'island': 'replicated'},
  }.items():
    with signal_at(monkeypatch, 12), pytest.raises(Interrupted):
      run(tmp_path / name, **sharded)
    assert max(checkpoint_steps(tmp_path / name)) == 12
    assert run(tmp_path / name, **resumed).summary['resumed_from_step'] == 12
    assert_close(tmp_path / name, reference)
  assert lines(tmp_path / 'same') == lines(tmp_path / 'whole')
  assert leaves(tmp_path / 'same', STEPS) == leaves(tmp_path / 'whole', STEPS)


def test_a_run_without_islands_is_resumed_on_them(reference, tmp_path, monkeypatch):
  with signal_at(monkeypatch, 12), pytest.raises(Interrupted):
    run(tmp_path, devices=2, quiet=True, checkpoint_every=1)
  result = run(tmp_path, devices=8, devices_per_worker=2, island='sharded', quiet=True)
  assert result.summary['resumed_from_step'] == 12
  assert_close(tmp_path, reference)


def test_the_initial_weights_are_trained_on_an_island(tmp_path):
  first = lambda folder, **options: (
    run(folder, init_epochs=1.0, learning_rate=0.1, quiet=True, **options),
    lines(folder),
  )
  _, alone = first(tmp_path / 'alone', devices=2)
  _, together = first(tmp_path / 'together', devices=8, devices_per_worker=4, island='sharded')
  np.testing.assert_allclose(together[0]['train_loss'], alone[0]['train_loss'], rtol=1e-4)
  assert alone[0]['train_loss'] < 0.95 * 1.4


ISLANDS = {'devices': 4, 'devices_per_worker': 2, 'island': 'sharded'}


@pytest.mark.slow
@pytest.mark.parametrize('policy', POLICIES)
def test_batch_statistics_are_those_of_the_whole_mini_batch(policy, tmp_path):
  config = vrl_jax.default_config()
  config.task, config.batch_stats = 'support.tasks.normed:make_task', policy
  config.update(workers=4, batch_size=4, period=4, steps=12, learning_rate=0.1, eval_every=0.5)
  for name, fields in {'islands': ISLANDS, 'none': {'devices': 2}}.items():
    config.update(devices_per_worker=1, island='replicated')
    config.update(fields)
    vrl_jax.train_and_evaluate(config, tmp_path / name)
  assert_close(tmp_path / 'islands', tmp_path / 'none')


@pytest.mark.slow
def test_lenet_and_its_convolutions(tmp_path):
  config = vrl_jax.load_config('lenet_mnist')
  config.update(dataset='mnist_5k', workers=2, period=3, init_epochs=0.0, epochs=None, steps=6, batch_size=16)
  config.eval_every = 0.05
  for name, fields in {'islands': ISLANDS, 'none': {'devices': 2}}.items():
    config.update(devices_per_worker=1, island='replicated')
    config.update(fields)
    vrl_jax.train_and_evaluate(config, tmp_path / name)
  assert_close(tmp_path / 'islands', tmp_path / 'none')


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'devices': 8, 'devices_per_worker': 3},
      'workers=4 cannot be divided over devices=8 in islands of devices_per_worker=3',
    ),
    (
      {'devices': 6, 'devices_per_worker': 2},
      'workers=4 cannot be divided over devices=6 in islands of devices_per_worker=2',
    ),
    ({'devices_per_worker': 16, 'batch_size': 16}, 'devices_per_worker=16 does not fit: JAX has 8'),
    ({'devices_per_worker': 3}, 'batch_size=4 cannot be divided over devices_per_worker=3'),
    ({'devices_per_worker': 2, 'island': 'split'}, "island='split', must be one of replicated, sharded"),
    ({'island': 'sharded'}, "island='sharded', but every worker has one device: set devices_per_worker"),
    ({'devices_per_worker': 0}, 'devices_per_worker=0, must be an integer of at least 1'),
    ({'devices': 8}, 'workers=4 cannot be divided over devices=8'),
  ],
)
def test_islands_that_do_not_fit_are_refused_in_one_line(options, message, tmp_path):
  with pytest.raises(UserError) as error:
    run(tmp_path / 'run', quiet=True, **options)
  assert message in str(error.value) and '\n' not in str(error.value)
  assert not (tmp_path / 'run' / 'checkpoints').exists()
