"""The default axis name: one mapped axis, or both axes of the engine."""

import jax
import jax.numpy as jnp
import optax
import pytest

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES, DEVICE_AXIS

PARAMS = {'w': jnp.ones(3), 'b': jnp.zeros([])}


def programs(algorithm, axis_env):
  """The jaxprs of one worker."""

  def period(params):
    state = algorithm.transform.init(params)
    updates, state = algorithm.transform.update(params, state, params)
    params, state = algorithm.communicate(optax.apply_updates(params, updates), state)
    return params, state, algorithm.consensus(params, state), algorithm.correction(state)

  return str(jax.make_jaxpr(period, axis_env=axis_env)(PARAMS))


@pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
@pytest.mark.parametrize('devices', [1, 2])
def test_in_the_engine_the_default_is_both_axes(name, devices):
  make = vrl_jax.ALGORITHMS[name]
  engine = [(DEVICE_AXIS, devices), (vrl_jax.AXIS, 4)]
  by_default = programs(make(optax.sgd(0.1)), engine)
  assert by_default == programs(make(optax.sgd(0.1), axis_name=AXES), engine)
  assert DEVICE_AXIS in by_default


@pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
def test_elsewhere_the_default_is_the_one_axis(name):
  make = vrl_jax.ALGORITHMS[name]
  axes = [('workers', 4)]
  assert programs(make(optax.sgd(0.1)), axes) == programs(make(optax.sgd(0.1), axis_name='workers'), axes)


def test_a_name_that_is_given_is_taken_literally():
  local = vrl_jax.local_sgd(optax.sgd(0.1), axis_name='workers')
  assert DEVICE_AXIS not in programs(local, [(DEVICE_AXIS, 2), ('workers', 4)])


def test_skip_if_any_not_finite_asks_all_devices():
  tx = vrl_jax.skip_if_any_not_finite(optax.sgd(0.1))
  update = lambda x: tx.update(x, tx.init(x), x)[0]
  in_engine = jax.vmap(jax.vmap(update, axis_name=vrl_jax.AXIS), axis_name=DEVICE_AXIS)
  assert in_engine(jnp.array([[1.0, 1.0], [1.0, jnp.nan]])).tolist() == [[0.0, 0.0], [0.0, 0.0]]
