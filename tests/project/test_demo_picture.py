"""The README's picture of the demo shows what the demo computes."""

import json
import re

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache

import configs.demo
import vrl_jax
from results import FOLDER
from results.builder import demo, figures
from vrl_jax import report
from vrl_jax.errors import UserError
from vrl_jax.training.sweep import sweep_runs

NUMBERS = demo.IMAGES / 'demo_loss.json'
STORED = json.loads(NUMBERS.read_text())
README = (FOLDER.parent / 'README.md').read_text()


def _assert_close(sweep):
  """Compares the train losses with the stored ones, as far as the runs go.

  Rounding depends on the machine; with 1 and 8 devices the first 20 epochs of VRL-SGD differ by 0.5 %.
  """
  for name, curve in demo.numbers(sweep)['curves'].items():
    stored = STORED['curves'][name]
    length = len(curve['epoch'])
    assert curve['algorithm'] == stored['algorithm']
    assert (curve['epoch'], curve['communications']) == (stored['epoch'][:length], stored['communications'][:length])
    for epoch, loss, stored_loss in zip(curve['epoch'], curve['train_loss'], stored['train_loss']):
      assert loss == pytest.approx(stored_loss, rel=0.08), f'{name}, epoch {epoch}: run `make demo-picture`'


def test_the_first_epochs_of_vrl_sgd(tmp_path):
  config = dict(sweep_runs(vrl_jax.load_config('demo')))['VRL-SGD']
  config.epochs, config.devices, config.compilation_cache = 16.0, 2, False
  vrl_jax.train_and_evaluate(config, tmp_path / 'VRL-SGD')
  sweep = report.read_sweep(tmp_path)
  assert [(run.name, run.column('epoch')[-1]) for run in sweep.runs] == [('VRL-SGD', 16)]
  _assert_close(sweep)


@pytest.mark.slow
def test_the_full_demo(tmp_path):
  runs = demo.run_demo(tmp_path / 'demo')
  assert list(demo.numbers(runs)['curves']) == list(STORED['curves'])
  assert all(run.column('epoch')[-1] == 60 for run in runs.runs)
  _assert_close(runs)


def test_the_picture_shows_the_stored_numbers(tmp_path):
  assert figures.stored_checksum(demo.IMAGES / 'demo_loss.png') == demo.checksum(NUMBERS), 'run `make demo-picture`'
  copy = tmp_path / NUMBERS.name
  copy.write_text(NUMBERS.read_text().replace('0.203', '0.204', 1))
  picture = demo.draw_picture(copy)
  assert figures.stored_checksum(picture) == demo.checksum(copy) != demo.checksum(NUMBERS)
  for name, loss in STORED['final_train_loss'].items():
    assert STORED['curves'][name]['train_loss'][-1] == pytest.approx(loss, rel=0.005)  # three significant digits


def test_the_numbers_in_the_text_are_the_stored_ones():
  final = {name: f'{loss:.3f}' for name, loss in STORED['final_train_loss'].items()}
  (row,) = re.findall(r'^\| `configs/demo.py` \|.*\|$', README, re.M)
  assert row.split('|')[-2].strip() == ', '.join(final[name] for name in ('S-SGD', 'VRL-SGD', 'Local SGD'))
  described = re.findall(r'(?<![\w-])(S-SGD|VRL-SGD-W|VRL-SGD|Local\s+SGD|EASGD)\s+(0\.\d+)', configs.demo.__doc__)
  assert {re.sub(r'\s+', ' ', name): loss for name, loss in described} == final
  counts = {name: curve['communications'][-1] for name, curve in STORED['curves'].items()}
  assert counts == {'S-SGD': 900, 'Local SGD': 90, 'EASGD': 90, 'VRL-SGD': 90, 'VRL-SGD-W': 91}


def test_no_curve_of_vrl_sgd_rises_above_its_start():
  for name in ('VRL-SGD', 'VRL-SGD-W'):
    losses = STORED['curves'][name]['train_loss']
    assert max(losses) == losses[0] and losses == sorted(losses, reverse=True)


def test_an_existing_run_directory_is_refused(tmp_path):
  with pytest.raises(UserError, match='already exists; give a new run directory'):
    demo.make_picture(tmp_path, tmp_path)
