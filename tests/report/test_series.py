"""Lines: their labels, looks and values."""

import json

import numpy as np
from support.report_samples import lenet_points, write_run

from vrl_jax import report
from vrl_jax.report import names, series, style


def test_variants_and_repetitions_have_distinct_labels(tmp_path):
  for i, alpha in enumerate((0.1, 0.2, 0.2)):
    write_run(tmp_path / f'run{i}', lenet_points('easgd'), algorithm='easgd', alpha=alpha, seed=0)
  write_run(tmp_path / 'w', lenet_points('vrl_sgd'), algorithm='vrl_sgd', first_period=1, period=20, alpha=None, seed=0)
  lines = series.make_lines(report.read_any(tmp_path).runs)
  labels = ['EASGD, α = 0.1', 'EASGD, α = 0.2 (run1)', 'EASGD, α = 0.2 (run2)', 'VRL-SGD-W']
  assert [line.label for line in lines] == labels
  assert len({style.look(line.algorithm, line.variant, line.variants) for line in lines}) == 4


def test_names_in_the_sweep_are_the_labels_unless_there_is_a_grid_of_comparisons(tmp_path):
  runs = [('plain', 'local_sgd', 0), ('plain', 'local_sgd', 1), ('vrl_sgd', 'vrl_sgd', 0), ('mine', 'mine', 0)]
  entries = [{'name': f'{name}, seed={seed}', 'folder': f'{i}'} for i, (name, _, seed) in enumerate(runs)]
  for i, (_, algorithm, seed) in enumerate(runs):
    write_run(tmp_path / f'{i}', lenet_points('vrl_sgd'), algorithm=algorithm, seed=seed, period=20)
  labels = lambda: [line.label for line in series.make_lines(report.read_any(tmp_path).runs)]
  assert labels() == ['Local SGD', 'VRL-SGD', 'Mine']
  (tmp_path / 'sweep.json').write_text(json.dumps({'runs': entries}))
  assert labels() == ['plain', 'VRL-SGD', 'mine']  # a name that is the key of a known algorithm stands for it
  for i, algorithm in enumerate(('local_sgd', 'vrl_sgd'), start=4):
    write_run(tmp_path / f'{i}', lenet_points(algorithm), algorithm=algorithm, seed=0, period=5)
    entries.append({'name': f'other {i}', 'folder': f'{i}'})
  (tmp_path / 'sweep.json').write_text(json.dumps({'runs': entries}))
  assert labels() == ['Local SGD, k = 20', 'VRL-SGD, k = 20', 'Mine', 'Local SGD, k = 5', 'VRL-SGD, k = 5']


def test_colours_can_be_read_on_a_dark_page():
  looks = [style.look(name) for name in names.ALGORITHMS] + [style.look('vrl_sgd', i, 3) for i in range(3)]
  dark = [style.on_dark(look.color) for look in looks]
  brightness = [max(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in dark]
  assert min(brightness) > 140 and len(set(dark)) == len({look.color for look in looks})


def test_seeds_with_different_log_points(tmp_path):
  for seed, stride in enumerate((1, 2)):
    points = [{'step': s, 'epoch': s, 'train_loss': float(s + 2 * seed)} for s in range(0, 9 - seed, stride)]
    write_run(tmp_path / f'a-{seed}', points, algorithm='local_sgd', seed=seed)
  (line,) = series.make_lines(report.read_any(tmp_path).runs)
  curve = series.curve(line.runs, 'epoch', 'train_loss')
  assert line.name == 'a'
  np.testing.assert_allclose(curve.x, np.arange(7))
  np.testing.assert_allclose([curve.low, curve.mean, curve.high], [np.arange(7), np.arange(7) + 1, np.arange(7) + 2])


def test_names_and_looks():
  assert names.algorithm('cocod_sgd') == 'CoCoD-SGD'
  assert names.format_bytes(999_600) == '1 MB'
  assert names.format_number(12345.6) == '12,346'
  assert style.look('anything') == style.look('anything')
  assert style.look('vrl_sgd').color == style.look('vrl_sgd', 0, 3).color
