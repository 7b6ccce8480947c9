"""`seeds`: one run per seed, alone or for every entry of a sweep."""

import json
import subprocess

import pytest
from support import launches
from support.inprocess import shared_compilation_cache as shared_compilation_cache

from vrl_jax import report
from vrl_jax.config.files import load_config
from vrl_jax.errors import UserError
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.sweep import is_sweep, run_sweep, sweep_runs

SWEEP = ({'name': 'Local SGD', 'algorithm': 'local_sgd'}, {'name': 'VRL-SGD', 'algorithm': 'vrl_sgd'})


def _config(**fields):
  config = load_config('quadratic')
  config.update(steps=20, period=5, noise=1.0, **fields)
  return config


def _summaries(folder):
  return {path.parent.name: json.loads(path.read_text()) for path in folder.glob('*/summary.json')}


def test_a_single_config_becomes_a_run_per_seed(tmp_path):
  flags = ('--config.seeds=(0, 7)', '--config.noise=1.0', '--config.steps=20')
  subprocess.run(launches.command(tmp_path, *flags, config='quadratic'), cwd=launches.ROOT, check=True)
  summaries = _summaries(tmp_path)
  assert set(summaries) == {'vrl_sgd_seed=0', 'vrl_sgd_seed=7'}
  assert len({summary['train_loss'] for summary in summaries.values()}) == 2
  seeds = {json.loads(path.read_text())['seed'] for path in tmp_path.glob('*/config.json')}
  assert seeds == {0, 7}


def test_each_run_is_the_same_as_with_its_seed_alone(tmp_path):
  run_sweep(_config(seeds=(3, 4)), tmp_path / 'both')
  alone = train_and_evaluate(_config(seed=4), tmp_path / 'alone')
  assert _summaries(tmp_path / 'both')['vrl_sgd_seed=4']['train_loss'] == alone['train_loss']


def test_a_sweep_with_seeds_and_its_table(tmp_path, capsys):
  config = _config(seeds=(0, 1, 2))
  config.sweep = SWEEP
  run_sweep(config, tmp_path)
  assert len(_summaries(tmp_path)) == 6
  table = report.comparison_table(report.read_sweep(tmp_path))
  assert table in capsys.readouterr().out
  rows = [line for line in table.splitlines() if 'SGD' in line and 'run' not in line]
  assert [row[:9].strip() for row in rows] == ['Local SGD', 'VRL-SGD']
  assert all('±' in row for row in rows)


def test_without_seeds():
  config = _config()
  assert not is_sweep(config)
  config.sweep = SWEEP
  assert [name for name, _ in sweep_runs(config)] == ['Local SGD', 'VRL-SGD']


@pytest.mark.parametrize(
  'seeds, message',
  [((1, 1), 'more than once'), ((0, -1), 'seed=-1'), ((0, 0.5), 'seed'), (('a',), 'seed')],
)
def test_bad_seeds_are_refused_before_anything_runs(seeds, message, tmp_path):
  with pytest.raises(UserError, match=message):
    run_sweep(_config(seeds=seeds), tmp_path / 'x')
  assert not (tmp_path / 'x').exists()


def test_an_entry_that_sets_seed_is_refused(tmp_path):
  config = _config(seeds=(0, 1))
  config.sweep = ({'name': 'fixed', 'seed': 3},)
  with pytest.raises(UserError, match="'fixed' already sets seed"):
    run_sweep(config, tmp_path / 'x')


def test_one_run_cannot_have_several_seeds(tmp_path):
  with pytest.raises(UserError, match=r'seeds=\(0, 1\) means several runs'):
    train_and_evaluate(_config(seeds=(0, 1)), tmp_path / 'x')
