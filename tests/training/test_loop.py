"""The training loop: its files, divergence and signals."""

import json
import signal

import numpy as np
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at, small_config
from support.launches import checkpoint_steps, contents, leaves, lines, summary

import vrl_jax
from vrl_jax.engine import periods
from vrl_jax.errors import Diverged, Interrupted, UserError
from vrl_jax.system.signals import StopRequest
from vrl_jax.training import initial_weights, loop
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.metrics import Evaluator
from vrl_jax.training.trainer import Trainer


def test_the_files_of_a_run(tmp_path):
  result = train_and_evaluate(small_config(), tmp_path / 'deep' / 'run')
  run = tmp_path / 'deep' / 'run'
  assert result == summary(run)
  rows = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
  assert [row['step'] for row in rows] == [0, 13, 21, 33, 40]
  assert all(row.keys() == rows[0].keys() for row in rows)
  assert {key: result[key] for key in rows[-1]} == rows[-1]
  assert (result['status'], result['resumed_from_step'], result['total_steps']) == ('finished', 0, 40)
  assert json.loads((run / 'config.json').read_text())['period'] == 4
  assert json.loads((run / 'partition.json').read_text())['table']
  assert checkpoint_steps(run) == [33, 37, 40]


def test_a_checkpoint_holds_the_state_of_every_worker(tmp_path):
  train_and_evaluate(small_config(), tmp_path)
  arrays = {name: (dtype, shape) for name, dtype, shape, _ in leaves(tmp_path, 40)}
  assert arrays['params'] == ('float32', [8, 5])
  assert arrays['step'] == ('int32', [8])
  assert any('delta' in name and shape == [8, 5] for name, (_, shape) in arrays.items())
  assert any('trace' in name and shape == [8, 5] for name, (_, shape) in arrays.items())


def test_divergence_ends_the_run_and_keeps_the_last_good_checkpoint(tmp_path):
  config = small_config(algorithm='local_sgd', learning_rate=1e4, schedule='constant', steps=400)
  message = (
    r'local_sgd diverged by step \d+ \(learning_rate=10000, period=4; last finite train loss \S+ at step \d+\): '
    r'try a smaller learning_rate, a shorter period or clip_norm; the checkpoint of step \d+ is kept$'
  )
  with pytest.raises(Diverged, match=message) as caught:
    train_and_evaluate(config, tmp_path)
  assert caught.value.exit_status == 4
  assert '\n' not in str(caught.value)
  assert summary(tmp_path)['status'] == 'diverged'
  assert summary(tmp_path)['train_loss'] is None
  last = lines(tmp_path)[-1]['step']
  assert 0 < checkpoint_steps(tmp_path)[-1] < last < 400
  before = contents(tmp_path)
  with pytest.raises(Diverged, match=message):  # the same call raises the same error
    train_and_evaluate(config, tmp_path)
  assert contents(tmp_path) == before


def test_divergence_with_log_every_step_stops_at_the_step(tmp_path):
  config = small_config(algorithm='local_sgd', learning_rate=1e4, schedule='constant', log_every_step=True, steps=400)
  with pytest.raises(Diverged):
    train_and_evaluate(config, tmp_path)
  rows = lines(tmp_path)
  assert [row['step'] for row in rows] == list(range(len(rows)))
  finite = [
    np.isfinite([row[key] if row[key] is not None else np.nan for key in ('train_loss', 'consensus_distance')]).all()
    for row in rows
  ]
  assert finite == [True] * (len(rows) - 1) + [False]


def test_the_work_and_the_memory_of_a_log_point_do_not_grow(tmp_path, monkeypatch):
  """One comparison of losses per log point, and no list of the log lines."""
  calls, trainers = [], []
  monkeypatch.setattr(periods, 'period_from_loss', lambda *args: calls.append(args) or 4 + 4 * (len(calls) % 2))
  monkeypatch.setattr(loop, 'Trainer', lambda **kwargs: trainers.append(Trainer(**kwargs)) or trainers[-1])
  train_and_evaluate(small_config(log_every_step=True, max_period=8, period=4, steps=80), tmp_path)
  assert len(lines(tmp_path)) == 81 == len(calls)
  assert not any(isinstance(value, list) for value in vars(trainers[0]).values())


def test_home_directories_are_expanded(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.chdir(tmp_path)
  assert train_and_evaluate(small_config(steps=8), '~/run')['status'] == 'finished'
  vrl_jax.run_sweep(small_config(steps=8, seeds=(0,)), '~/sweep')
  vrl_jax.export_model('~/run', '~/model.npz')
  assert sorted(path.name for path in tmp_path.iterdir()) == ['model.npz', 'run', 'sweep']


def test_a_start_with_a_loss_that_is_not_finite(tmp_path):
  with pytest.raises(Diverged, match='diverged by step 0 .* from the start'):
    train_and_evaluate(small_config(x0=1e30), tmp_path)
  assert checkpoint_steps(tmp_path) == []


def test_a_signal_in_the_last_round_interrupts_after_the_run_has_finished(tmp_path, monkeypatch):
  with signal_at(monkeypatch, 40, signal.SIGINT), pytest.raises(Interrupted) as caught:
    train_and_evaluate(small_config(), tmp_path)
  assert caught.value.exit_status == 130
  assert summary(tmp_path)['status'] == 'finished'


def test_a_signal_while_the_initial_weights_are_computed_leaves_no_directory(tmp_path, monkeypatch):
  stop, train = StopRequest(), initial_weights._plain_sgd

  def train_after_a_signal(*args):
    stop.signum = signal.SIGTERM
    return train(*args)

  monkeypatch.setattr(initial_weights, '_plain_sgd', train_after_a_signal)
  with pytest.raises(Interrupted, match='stopped by SIGTERM'):
    train_and_evaluate(small_config(init_epochs=1.0), tmp_path / 'run', stop)
  assert not (tmp_path / 'run').exists()


def test_a_second_sigint_is_a_keyboard_interrupt(tmp_path, monkeypatch):
  """For a notebook; launch.py ends the process instead."""

  def twice(self, *args):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)

  monkeypatch.setattr(Evaluator, 'log_line', twice)
  with pytest.raises(KeyboardInterrupt) as caught:
    train_and_evaluate(small_config(), tmp_path)
  assert type(caught.value) is KeyboardInterrupt
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_outside_the_main_thread_handles_no_signals(tmp_path):
  import threading

  results = []
  thread = threading.Thread(target=lambda: results.append(train_and_evaluate(small_config(steps=4), tmp_path)))
  thread.start()
  thread.join()
  assert results[0]['status'] == 'finished'


def test_a_missing_field_of_the_task(tmp_path):
  config = small_config()
  del config.dimension
  with pytest.raises(UserError, match="the config has no field 'dimension'"):
    train_and_evaluate(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
