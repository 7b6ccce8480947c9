"""The quadratics of the paper's appendix, in the training loop."""

import json

import numpy as np
import pytest

from vrl_jax.config.files import load_config
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.sweep import sweep_runs

ALGORITHMS = {
  'S-SGD': ('s_sgd', None),
  'Local SGD': ('local_sgd', None),
  'EASGD': ('easgd', None),
  'VRL-SGD': ('vrl_sgd', None),
  'VRL-SGD-W': ('vrl_sgd', 1),
}


def run_appendix(tmp_path, name, **fields):
  config = load_config('quadratic')
  config.algorithm, config.first_period = ALGORITHMS[name]
  config.update(fields)
  summary = train_and_evaluate(config, tmp_path)
  lines = [json.loads(line) for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
  return summary, lines


@pytest.mark.parametrize(
  'name, distance', [('S-SGD', 5.1e-6), ('Local SGD', 1.2e1), ('VRL-SGD', 5.6e-5), ('VRL-SGD-W', 3.1e-6)]
)
def test_final_distance_for_b_100_and_k_20(tmp_path, name, distance):
  summary, lines = run_appendix(tmp_path, name)
  assert summary['distance_to_optimum'] == pytest.approx(distance, rel=0.02)
  assert [line['step'] for line in lines] == list(range(401))


def test_with_warm_up_the_distance_does_not_depend_on_b(tmp_path):
  finals = [run_appendix(tmp_path / str(b), 'VRL-SGD-W', b=b)[0]['distance_to_optimum'] for b in (1.0, 10.0, 100.0)]
  np.testing.assert_allclose(finals, finals[0], rtol=1e-6)


@pytest.mark.parametrize('name, vanishes', [('Local SGD', False), ('VRL-SGD', True), ('VRL-SGD-W', True)])
def test_variance_among_workers_at_the_end(tmp_path, name, vanishes):
  _, lines = run_appendix(tmp_path, name)
  at_round_ends = [line['variance_among_workers'] for line in lines[20::20]]
  if vanishes:
    assert at_round_ends[-1] < 1e-6
  else:
    np.testing.assert_allclose(at_round_ends[-5:], at_round_ends[-1], rtol=1e-3)
    assert at_round_ends[-1] > 1e3


def test_every_logged_step_agrees_with_numpy(tmp_path):
  """Local SGD with b = 1, k = 5: x̂, f(x̂), the variance of g_i and the distance among the x_i, at every step."""
  _, lines = run_appendix(tmp_path, 'Local SGD', b=1.0, period=5, steps=12)
  a, c, x = np.array([1.0, 2.0]), np.array([-2.0, 1.0]), np.ones(2)
  for step in range(1, 13):
    g = 2 * a * (x - c)
    x = x - 0.01 * g
    line = lines[step]
    np.testing.assert_allclose(line['variance_among_workers'], np.var(g), rtol=1e-12)
    np.testing.assert_allclose(line['consensus_distance'], np.var(x), rtol=1e-10, atol=1e-18)
    np.testing.assert_allclose(line['distance_to_optimum'], abs(x.mean()), rtol=1e-12)
    np.testing.assert_allclose(line['train_loss'], np.mean(a * (x.mean() - c) ** 2), rtol=1e-12)
    assert line['communications'] == step // 5 + (step == 12)
    if step % 5 == 0 or step == 12:
      x = np.full(2, x.mean())


def test_random_quadratics_with_noise_end_near_the_optimum(tmp_path):
  fields = dict(workers=8, a=(), c=(), b=1.0, dimension=5, noise=0.1, log_every_step=False, eval_every=100.0)
  summary, lines = run_appendix(tmp_path, 'VRL-SGD', **fields)
  assert 1e-6 < summary['distance_to_optimum'] < 0.1 < lines[0]['distance_to_optimum']
  again, _ = run_appendix(tmp_path / 'again', 'VRL-SGD', **fields)
  assert again['distance_to_optimum'] == summary['distance_to_optimum']


def test_the_figure_config_is_the_full_grid():
  config = load_config('figures/quadratic')
  runs = dict(sweep_runs(config))
  assert len(runs) == 3 * 4 * 5
  assert {(run.b, run.period) for run in runs.values()} == {(b, k) for b in (1, 10, 100) for k in (2, 5, 10, 20)}
