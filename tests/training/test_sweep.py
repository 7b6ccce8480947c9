"""Several runs in one directory."""

import json
import signal

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at, small_config
from support.launches import contents, lines, summary

from vrl_jax import report
from vrl_jax.config.fields import default_config
from vrl_jax.errors import Interrupted, UserError
from vrl_jax.training.directory_lock import DirectoryLock
from vrl_jax.training.sweep import run_sweep, sweep_runs


def sweep(*entries, **fields):
  config = small_config(checkpoint_every=0, steps=12, **fields)
  config.sweep = entries
  return config


TWO = ({'name': 'k=2', 'period': 2}, {'name': 'k=4', 'period': 4})


def test_a_sweep_resumes_and_repeats_no_finished_run(tmp_path, monkeypatch, capsys):
  with signal_at(monkeypatch, 12), pytest.raises(Interrupted):  # in the last round of the first run
    run_sweep(sweep(*TWO), tmp_path)
  assert summary(tmp_path / 'k=2')['status'] == 'finished'
  assert not (tmp_path / 'k=4').exists()
  result = run_sweep(sweep(*TWO), tmp_path)
  assert 'k=2: already finished' in capsys.readouterr().out
  assert summary(tmp_path / 'k=4')['status'] == 'finished'
  assert result.diverged == []
  assert all(path.exists() for path in result.files.values())
  assert [run['name'] for run in json.loads((tmp_path / 'sweep.json').read_text())['runs']] == ['k=2', 'k=4']


def test_a_run_that_diverges_does_not_stop_the_others(tmp_path, capsys):
  entries = ({'name': 'wild', 'learning_rate': 1e30, 'momentum': 0.0}, {'name': 'tame', 'period': 2})
  result = run_sweep(sweep(*entries), tmp_path)
  assert result.diverged == ['wild']
  assert 'diverged by step' in capsys.readouterr().out
  assert summary(tmp_path / 'wild')['status'] == 'diverged'
  assert lines(tmp_path / 'tame')[-1]['step'] == 12


def test_runs_with_other_configs_are_refused_before_anything_changes(tmp_path):
  run_sweep(sweep(TWO[0]), tmp_path)
  before = contents(tmp_path)
  with pytest.raises(UserError, match='k=2: holds a run with another config: period=2 there and 3 now'):
    run_sweep(sweep({'name': 'new', 'period': 4}, {'name': 'k=2', 'period': 3}), tmp_path)
  assert contents(tmp_path) == before


def test_a_sweep_without_a_run_that_the_directory_holds_is_refused_before_anything_changes(tmp_path):
  run_sweep(sweep(*TWO), tmp_path)
  before = contents(tmp_path)
  for entries in ((TWO[0],), (TWO[0], {'name': 'four', 'period': 4})):
    with pytest.raises(UserError, match=f"^{tmp_path}: holds runs that this sweep does not have: 'k=4'; add them to"):
      run_sweep(sweep(*entries), tmp_path)
  with pytest.raises(UserError, match="does not have: 'k=2', 'k=4'"):
    run_sweep(sweep(*TWO, seeds=(0, 1)), tmp_path)
  assert contents(tmp_path) == before


def test_a_sweep_can_be_extended_and_runs_that_have_not_begun_can_be_renamed(tmp_path, monkeypatch):
  with signal_at(monkeypatch, 12), pytest.raises(Interrupted):
    run_sweep(sweep(*TWO), tmp_path)  # k=4 has not begun
  (tmp_path / '.sweep.json.0123456789abcdef.tmp').write_text('{')  # as a kill leaves it
  entries = ({'name': 'k=3', 'period': 3}, TWO[0])
  run_sweep(sweep(*entries), tmp_path)
  assert [run.name for run in report.read_sweep(tmp_path).runs] == ['k=3', 'k=2']
  assert not list(tmp_path.glob('.*.tmp'))


@pytest.mark.parametrize('content', ('{"runs": ', '[]', '{"runs": 1}', '{"runs": [{"folder": "a"}]}'))
def test_a_damaged_index_is_refused(content, tmp_path):
  (tmp_path / 'sweep.json').write_text(content)
  with pytest.raises(UserError, match=r'sweep.json: .*; move it away or choose another --workdir'):
    run_sweep(sweep(*TWO), tmp_path)
  assert (tmp_path / 'sweep.json').read_text() == content


def test_folders_have_no_spaces_and_the_report_shows_the_names(tmp_path):
  run_sweep(sweep({'name': 'wide, k=2', 'period': 2}), tmp_path)
  assert summary(tmp_path / 'wide_k=2')['status'] == 'finished'
  assert not any(' ' in path.name or ',' in path.name for path in tmp_path.iterdir())
  assert [run.name for run in report.read_sweep(tmp_path).runs] == ['wide, k=2']


def test_a_run_in_a_folder_with_its_own_name_is_resumed_there(tmp_path, capsys):
  entries = ({'name': 'k=2, old', 'period': 2}, {'name': 'k=4, new', 'period': 4})
  run_sweep(sweep(entries[0]), tmp_path)
  (tmp_path / 'k=2_old').rename(tmp_path / 'k=2, old')  # as versions before 0.2 named it
  run_sweep(sweep(*entries), tmp_path)
  assert 'k=2, old: already finished' in capsys.readouterr().out
  assert sorted(path.parent.name for path in tmp_path.glob('*/config.json')) == ['k=2, old', 'k=4_new']
  assert [run.name for run in report.read_sweep(tmp_path).runs] == ['k=2, old', 'k=4, new']


def test_names_that_would_share_a_folder_are_refused_before_anything_is_written(tmp_path):
  with pytest.raises(UserError, match="'a b' and 'A-b' would share the directory A-b"):
    run_sweep(sweep({'name': 'a b'}, {'name': 'A-b'}), tmp_path / 'x')
  assert not (tmp_path / 'x').exists()


def test_the_class_table_is_printed_when_it_changes(tmp_path, capsys):
  config = default_config()
  config.task = 'support.tasks.normed:make_task'
  config.update(batch_stats='local', workers=4, batch_size=4, period=4, steps=4, devices=1)
  config.sweep = ({'name': 'a'}, {'name': 'b', 'algorithm': 'local_sgd'}, {'name': 'c', 'partition': 'identical'})
  run_sweep(config, tmp_path)
  shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith(('[', 'worker'))]
  assert [line.split()[0] for line in shown] == ['[1/3]', 'worker', '[2/3]', '[3/3]', 'worker']


def test_two_sweeps_in_one_directory_at_once(tmp_path):
  with (
    DirectoryLock.acquire(tmp_path / 'sweep'),
    pytest.raises(UserError, match='another process is running in this directory'),
  ):
    run_sweep(sweep(*TWO), tmp_path / 'sweep')


def test_entries_are_converted_to_the_types_of_the_config():
  (_, run), *_ = sweep_runs(sweep({'name': 'a', 'period': 2, 'first_period': None, 'learning_rate': 1}))
  assert (run.learning_rate, run.first_period) == (1.0, None)
  assert 'sweep' not in run


@pytest.mark.parametrize('handler', (signal.SIGTERM, signal.SIGINT))
def test_signal_handlers_are_restored(handler, tmp_path):
  before = signal.getsignal(handler)
  run_sweep(sweep(TWO[0]), tmp_path)
  assert signal.getsignal(handler) is before
