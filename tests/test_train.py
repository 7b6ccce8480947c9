"""The training loop: what it writes, and how it ends when the numbers do."""

import contextlib
import json
import signal
import time

import numpy as np
import pytest
from inprocess import compiled_once as compiled_once
from inprocess import signal_at, small_config
from launches import checkpoint_steps, contents, leaves, lines, summary

from vrl_jax import signals
from vrl_jax.errors import UserError
from vrl_jax.measuring import Measuring
from vrl_jax.signals import Interrupted
from vrl_jax.train import Diverged, train_and_evaluate


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
  told = (
    r'local_sgd diverged by step \d+ \(learning_rate=10000, period=4; last finite train loss \S+ at step \d+\): '
    r'try a smaller learning_rate, a shorter period or clip_norm; the checkpoint of step \d+ is kept$'
  )
  with pytest.raises(Diverged, match=told) as caught:
    train_and_evaluate(config, tmp_path)
  assert caught.value.exit_status == 4
  assert '\n' not in str(caught.value)
  assert summary(tmp_path)['status'] == 'diverged'
  assert summary(tmp_path)['train_loss'] is None
  last = lines(tmp_path)[-1]['step']
  assert 0 < checkpoint_steps(tmp_path)[-1] < last < 400
  before = contents(tmp_path)
  with pytest.raises(Diverged, match=told):  # the same command says the same
    train_and_evaluate(config, tmp_path)
  assert contents(tmp_path) == before


def test_divergence_with_every_step_logged_stops_at_the_step(tmp_path):
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


def test_a_start_that_is_not_finite(tmp_path):
  with pytest.raises(Diverged, match='diverged by step 0 .* from the start'):
    train_and_evaluate(small_config(x0=1e30), tmp_path)
  assert checkpoint_steps(tmp_path) == []


def test_a_signal_in_the_last_round_is_not_forgotten(tmp_path, monkeypatch):
  """The run is finished, and whoever called it is stopped."""
  with signal_at(monkeypatch, 40, signal.SIGINT), pytest.raises(Interrupted) as caught:
    train_and_evaluate(small_config(), tmp_path)
  assert caught.value.exit_status == 130
  assert summary(tmp_path)['status'] == 'finished'


def test_a_second_sigint_is_a_keyboard_interrupt(tmp_path, monkeypatch):
  """For a notebook; launch.py ends the process instead."""

  def twice(self, *args):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)

  monkeypatch.setattr(Measuring, 'line', twice)
  with pytest.raises(KeyboardInterrupt) as caught:
    train_and_evaluate(small_config(), tmp_path)
  assert type(caught.value) is KeyboardInterrupt
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_outside_the_main_thread(tmp_path):
  """Signals are left alone there."""
  import threading

  results = []
  thread = threading.Thread(target=lambda: results.append(train_and_evaluate(small_config(steps=4), tmp_path)))
  thread.start()
  thread.join()
  assert results[0]['status'] == 'finished'


def test_a_task_that_needs_a_field_which_the_config_lacks(tmp_path):
  config = small_config()
  del config.dimension
  with pytest.raises(UserError, match="task='quadratic' needs the field 'dimension'"):
    train_and_evaluate(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_signal_whose_exception_is_swallowed_comes_again(monkeypatch):
  """JAX's callbacks print an exception and go on."""
  monkeypatch.setattr(signals, '_REMINDER', 0.05)
  with pytest.raises(signals.Interrupted), signals.stop_requests():
    with contextlib.suppress(signals.Interrupted):
      signal.raise_signal(signal.SIGTERM)
    time.sleep(5)
