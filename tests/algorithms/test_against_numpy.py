"""Trajectories under vmap and in the engine against the independent NumPy implementation, to 1e-10."""

import functools

import numpy as np
import optax
import pytest
from support import numpy_reference as reference
from support import quadratics

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES

pytestmark = pytest.mark.usefixtures('x64')

PROBLEM = reference.heterogeneous()
X0 = np.linspace(-1.0, 2.0, quadratics.DIMENSION)
RATE, DECAYED, BETA = 0.03, 0.1, 0.8

# The period, the number of steps and the first period. The last rounds of k3 and k20 are partial.
PERIODS = {
  'k1': (1, 6, None),
  'k3': (3, 20, None),
  'k3_warm': (3, 20, 1),
  'k20': (20, 50, None),
  'k20_warm': (20, 50, 1),
}


def _falling(t):
  return RATE / (1 + 0.1 * float(t))


def _falling_count(count):
  return RATE / (1 + 0.1 * count.astype(float))


# The reference's optimizer, and the same optimizer in optax.
INNER = {
  'plain': (reference.SGD(lambda t: RATE), lambda: optax.sgd(RATE)),
  'schedule': (reference.SGD(_falling), lambda: optax.sgd(_falling_count)),
  'decay': (
    reference.SGD(lambda t: RATE, weight_decay=DECAYED),
    lambda: optax.chain(optax.add_decayed_weights(DECAYED), optax.sgd(RATE)),
  ),
  'momentum': (reference.SGD(lambda t: RATE, momentum=BETA), lambda: optax.sgd(RATE, momentum=BETA)),
  'all': (
    reference.SGD(_falling, weight_decay=DECAYED, momentum=BETA, nesterov=True),
    lambda: optax.chain(optax.add_decayed_weights(DECAYED), optax.sgd(_falling_count, momentum=BETA, nesterov=True)),
  ),
}

CASES = [(name, inner, 'keep') for name in ('s_sgd', 'local_sgd', 'easgd', 'vrl_sgd') for inner in INNER]
CASES += [
  (name, inner, buffers)
  for name in ('local_sgd', 'vrl_sgd')
  for inner in ('momentum', 'all')
  for buffers in ('mean', 'reset')
]


@functools.cache
def _make(name, inner, buffers, axis_name):
  options = {} if buffers == 'keep' else {'buffers': buffers}
  return vrl_jax.ALGORITHMS[name](INNER[inner][1](), axis_name=axis_name, **options)


@pytest.mark.parametrize('periods', PERIODS)
@pytest.mark.parametrize(('name', 'inner', 'buffers'), CASES)
def test_under_vmap(name, inner, buffers, periods):
  period, steps, first = PERIODS[periods]
  lengths = reference.lengths(steps, period, first)
  expected = reference.run(name, PROBLEM, INNER[inner][0], lengths, X0, buffers=buffers)

  algorithm = _make(name, inner, buffers, 'w')
  models, evaluated, state = quadratics.run_vmapped(algorithm, PROBLEM, lengths, X0)

  np.testing.assert_allclose(models, [step.x for step in expected], rtol=0, atol=1e-10)
  for worker in range(quadratics.WORKERS):
    np.testing.assert_allclose(evaluated[:, worker], [step.consensus for step in expected], rtol=0, atol=1e-10)
  if name == 'vrl_sgd':
    np.testing.assert_allclose(quadratics.to_flat(state.delta), expected[-1].new_delta, rtol=0, atol=1e-10)


@pytest.mark.parametrize('periods', ['k3_warm', 'k20'])
@pytest.mark.parametrize(
  ('name', 'inner', 'buffers'),
  [
    ('s_sgd', 'all', 'keep'),
    ('local_sgd', 'all', 'keep'),
    ('easgd', 'all', 'keep'),
    ('vrl_sgd', 'plain', 'keep'),
    ('vrl_sgd', 'all', 'keep'),
    ('vrl_sgd', 'all', 'mean'),
    ('vrl_sgd', 'all', 'reset'),
  ],
)
def test_engine(name, inner, buffers, periods):
  period, steps, first = PERIODS[periods]
  lengths = reference.lengths(steps, period, first)
  expected = reference.run(name, PROBLEM, INNER[inner][0], lengths, X0, buffers=buffers)
  ends = np.cumsum(lengths) - 1

  engine = quadratics.make_engine(_make(name, inner, buffers, AXES), PROBLEM, devices=2)
  models, state = quadratics.run_engine(engine, lengths, X0)

  np.testing.assert_allclose(models, [expected[end].x for end in ends], rtol=0, atol=1e-10)
  consensus = quadratics.to_flat(engine.consensus(state))
  np.testing.assert_allclose(consensus, [expected[-1].consensus] * 2, rtol=0, atol=1e-10)


@pytest.mark.parametrize('alpha', [1 / 8, 0.05])  # None is one of CASES
def test_easgd_alpha(alpha):
  lengths = reference.lengths(20, 3)
  expected = reference.run('easgd', PROBLEM, INNER['plain'][0], lengths, X0, alpha=alpha)
  algorithm = vrl_jax.easgd(optax.sgd(RATE), alpha=alpha, axis_name='w')
  models, evaluated, _ = quadratics.run_vmapped(algorithm, PROBLEM, lengths, X0)
  np.testing.assert_allclose(models, [step.x for step in expected], rtol=0, atol=1e-10)
  np.testing.assert_allclose(evaluated[:, 0], [step.consensus for step in expected], rtol=0, atol=1e-10)
