"""D² and EXTRA: mixing on a ring and on the complete graph."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, family_reference, quadratics
from support import numpy_reference as reference

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.algorithms.core.mixing import mix, shift

pytestmark = pytest.mark.usefixtures('x64')

DECENTRALISED = ('d2', 'extra')


@pytest.mark.parametrize('shape', [(8,), (4, 2), (2, 4), (1, 8), (8, 1), (2, 2, 2), (1, 1), (2,), (2, 1)])
def test_shift_around_all_axes(shape):
  names = tuple('abc'[: len(shape)])
  workers = np.arange(np.prod(shape), dtype=np.float64)
  for by in (1, -1):
    worker = lambda x, by=by: shift({'x': x}, by, names)['x']
    for name in reversed(names):
      worker = jax.vmap(worker, axis_name=name)
    np.testing.assert_array_equal(worker(workers.reshape(shape)).ravel(), np.roll(workers, by))


@pytest.mark.parametrize('workers', [1, 2, 3, 8])
def test_mixing_on_the_ring_is_multiplication_by_its_matrix(workers):
  w = jax.vmap(lambda x: mix('ring', x, 'w'), axis_name='w')(jnp.eye(workers))
  np.testing.assert_allclose(w, family_reference.ring(workers), atol=1e-15)
  assert np.linalg.eigvalsh(w).min() > -1e-15
  np.testing.assert_allclose(np.sum(w, axis=0), 1)


def test_narrow_dtypes_are_mixed_in_float32():
  assert mix('complete', jnp.ones(2, jnp.bfloat16), ()).dtype == jnp.float32
  mixed = jax.vmap(lambda x: mix('ring', x, 'w'), axis_name='w')(jnp.ones(3, jnp.bfloat16))
  assert mixed.dtype == jnp.float32


def test_d2_by_hand():
  # Four workers, γ = 0.5, the constant gradients 8, 0, 0, 0. First (I/2 + neighbours/4)(-4, 0, 0, 0).
  # Then W(2x - 0 + u - u) = 2W(-2, -1, 0, -1) = 2·(-1.5, -1, -0.5, -1).
  algorithm = vrl_jax.d2(optax.sgd(0.5), axis_name='w')
  models, _ = family.run_rounds(algorithm, [jnp.array([8.0, 0.0, 0.0, 0.0])], 2, jnp.zeros(4))
  np.testing.assert_array_equal(models, [[-2, -1, 0, -1], [-3, -2, -1, -2]])


def test_extra_by_hand():
  # x¹ = (-4, 0, 0, 0). Then (I + W)x¹ - 0 + u - u = (-4 - 2, -1, 0, -1).
  algorithm = vrl_jax.extra(optax.sgd(0.5), axis_name='w')
  models, _ = family.run_rounds(algorithm, [jnp.array([8.0, 0.0, 0.0, 0.0])], 2, jnp.zeros(4))
  np.testing.assert_array_equal(models, [[-4, 0, 0, 0], [-6, -1, 0, -1]])


@pytest.mark.parametrize('mixing', ['ring', 'complete'])
@pytest.mark.parametrize('name', DECENTRALISED)
def test_against_numpy(name, mixing):
  w = family_reference.ring(8) if mixing == 'ring' else np.full((8, 8), 1 / 8)
  algorithm = vrl_jax.ALGORITHMS[name](family.falling_sgd(), mixing=mixing, axis_name='w')
  models, evaluated, _ = family.run(algorithm, [15])
  expected = getattr(family_reference, name)(family.PROBLEM, family.rate, 15, family.X0, w)
  np.testing.assert_allclose(models, expected, atol=1e-11)
  np.testing.assert_allclose(evaluated[:, 5], expected.mean(axis=1), atol=1e-11)


def test_d2_on_the_complete_graph_is_s_sgd():
  """W = 11ᵀ/N: x̂ᵗ⁺¹ = 2x̂ᵗ - x̂ᵗ⁻¹ + ū - ū₋ telescopes to x̂ᵗ⁺¹ - x̂ᵗ = ū."""
  models, _, _ = family.run(vrl_jax.d2(family.falling_sgd(), mixing='complete', axis_name='w'), [15])
  central = reference.run('s_sgd', family.PROBLEM, reference.SGD(family.rate), [15], family.X0)
  np.testing.assert_allclose(models, [step.x for step in central], atol=1e-11)


@pytest.mark.parametrize('name', DECENTRALISED)
def test_the_engine_reaches_the_exact_optimum_with_a_constant_rate(name):
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.1), axis_name=AXES)
  finals = []
  for devices in (8, 2):
    engine = quadratics.make_engine(algorithm, family.PROBLEM, devices=devices)
    state, _ = engine.run(engine.init(quadratics.start(family.X0)), quadratics.items(engine, 400), 1)
    finals.append(quadratics.worker_models(state))
  np.testing.assert_allclose(finals[0], np.tile(family.PROBLEM.optimum, (8, 1)), atol=1e-9)
  np.testing.assert_allclose(finals[1], finals[0], atol=1e-12)


@pytest.mark.parametrize('name', DECENTRALISED)
def test_bad_mixing_and_missing_params(name):
  with pytest.raises(ValueError, match="mixing='star', must be one of ring, complete"):
    vrl_jax.ALGORITHMS[name](optax.sgd(0.1), mixing='star')
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.1))
  with pytest.raises(ValueError, match='needs the parameters'):
    algorithm.transform.update(jnp.ones(2), algorithm.transform.init(jnp.ones(2)))
