"""skip_if_any_not_finite: all workers skip a step with a non-finite gradient together."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, quadratics

import vrl_jax

pytestmark = pytest.mark.usefixtures('x64')


def _make(name):
  return vrl_jax.ALGORITHMS[name](optax.sgd(0.03, momentum=0.5), axis_name='w')


@pytest.mark.parametrize('mapped', [quadratics.under_vmap, quadratics.under_pmap, quadratics.under_shard_map])
@pytest.mark.parametrize('name', ['vrl_sgd', 'local_sgd'])
def test_all_workers_skip_a_bad_gradient_of_one(name, mapped):
  """Worker 2's gradient has a NaN at step 3 and an infinity at step 5; the trajectory is as if these steps did not
  exist."""

  def corrupt(step, grads):
    bad = jnp.where(step == 3, jnp.nan, jnp.where(step == 5, jnp.inf, 0.0))
    bad = jnp.where(jax.lax.axis_index('w') == 2, bad, 0.0)
    return grads | {'scalar': grads['scalar'] + bad}

  tx = vrl_jax.skip_if_any_not_finite(vrl_jax.as_optax(_make(name), 3), axis_name='w')
  loop = quadratics.training_loop(tx, 11, grads_at=corrupt)
  models = quadratics.run_loops(mapped(loop), family.PROBLEM, family.X0)
  np.testing.assert_array_equal(models[3], models[2])
  np.testing.assert_array_equal(models[5], models[4])
  expected, _, _ = family.run(_make(name), [3] * 3)
  np.testing.assert_allclose(np.delete(models, [3, 5], axis=0), expected, atol=1e-12)


def test_apply_if_finite_is_unsafe():
  """The failure that as_optax documents: a worker that skips a step alone falls behind the others."""
  tx = optax.apply_if_finite(vrl_jax.as_optax(_make('vrl_sgd'), 2), 5)
  params = jnp.zeros(2)
  state = jax.vmap(tx.init)(params)
  _, state = jax.vmap(tx.update, axis_name='w')(jnp.array([1.0, jnp.nan]), state, params)
  assert state.inner_state.step.tolist() == [1, 0]
