"""Lines: their labels, looks and values."""

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
