"""The linearity check of inner optimizers."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vrl_jax

LINEAR = {
  'sgd': lambda: optax.sgd(0.1),
  'momentum': lambda: optax.sgd(0.1, momentum=0.9),
  'nesterov': lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
  'linear schedule': lambda: optax.sgd(optax.linear_schedule(0.1, 0.0, 10)),
  'cosine schedule': lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 10)),
  'warm-up': lambda: optax.sgd(optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 10)),
  'steps': lambda: optax.sgd(optax.piecewise_constant_schedule(0.1, {5: 0.5})),
  'weight decay': lambda: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)),
  'decoupled decay': lambda: optax.chain(optax.trace(0.9), optax.add_decayed_weights(0.1), optax.scale(-0.1)),
  'masked': lambda: optax.masked(optax.sgd(0.1, momentum=0.9), {'w': True, 'b': False}),
  'labels': lambda: optax.multi_transform(
    {'a': optax.sgd(0.1, momentum=0.9), 'b': optax.set_to_zero()}, {'w': 'a', 'b': 'b'}
  ),
  'injected': lambda: optax.inject_hyperparams(optax.sgd)(0.1, momentum=0.9),
  'optimistic': lambda: optax.optimistic_gradient_descent(0.1),
}
NOT_LINEAR = {
  'adam': lambda: optax.adam(0.1),
  'adamw': lambda: optax.adamw(0.1),
  'rmsprop': lambda: optax.rmsprop(0.1),
  'adagrad': lambda: optax.adagrad(0.1),
  'lion': lambda: optax.lion(0.1),
  'sign': lambda: optax.sign_sgd(0.1),
  'lars': lambda: optax.lars(0.1),
  'clip': lambda: optax.chain(optax.clip(1.0), optax.sgd(0.1)),
  'clip by norm': lambda: optax.chain(optax.clip_by_global_norm(1e9), optax.sgd(0.1)),
  'clip after': lambda: optax.chain(optax.sgd(0.1), optax.clip_by_block_rms(1e9)),
  'zero nans': lambda: optax.chain(optax.zero_nans(), optax.sgd(0.1)),
  'lagging preconditioner': lambda: optax.contrib.acprop(0.1),  # the next step divides by the square
  'masked adam': lambda: optax.masked(optax.adam(0.1), {'w': True, 'b': False}),
}


def _params():
  return {'w': jnp.ones((3, 2)), 'b': jnp.ones(2)}


@pytest.fixture(autouse=True)
def standard_promotion():
  # Many of optax's optimizers do not run under strict promotion, so they would fail before the check.
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    yield


@pytest.mark.parametrize('name', LINEAR)
def test_linear_optimizers_are_accepted(name):
  algorithm = vrl_jax.vrl_sgd(LINEAR[name]())
  state = jax.eval_shape(algorithm.transform.init, _params())
  jax.eval_shape(algorithm.transform.update, _params(), state, _params())
  jax.eval_shape(jax.vmap(algorithm.transform.init), jax.tree.map(lambda x: x[None], _params()))


@pytest.mark.parametrize('name', NOT_LINEAR)
def test_nonlinear_optimizers_are_refused_with_advice(name):
  with pytest.raises(ValueError, match='is not linear in the gradient.*precede.*vrl_adaptive.*assume_linear=True'):
    vrl_jax.vrl_sgd(NOT_LINEAR[name]()).transform.init(_params())


@pytest.mark.parametrize('name', NOT_LINEAR)
def test_assume_linear_skips_the_check(name):
  algorithm = vrl_jax.vrl_sgd(NOT_LINEAR[name](), assume_linear=True)
  state = jax.eval_shape(algorithm.transform.init, _params())
  jax.eval_shape(algorithm.transform.update, _params(), state, _params())


def test_adam_may_precede_vrl_sgd():
  algorithm = vrl_jax.precede(optax.scale_by_adam(), vrl_jax.vrl_sgd(optax.sgd(0.1)))
  algorithm.transform.init(_params())


def _takes_any_optimizer(name):
  return 'assume_linear' not in inspect.signature(vrl_jax.ALGORITHMS[name]).parameters


@pytest.mark.parametrize('name', list(filter(_takes_any_optimizer, vrl_jax.ALGORITHMS)))
def test_the_other_algorithms_take_any_optimizer(name):
  vrl_jax.ALGORITHMS[name](optax.adam(0.1)).transform.init(_params())


def test_an_optimizer_with_a_required_extra_argument():
  with pytest.raises(ValueError, match="cannot be checked.*'value'.*assume_linear=True"):
    vrl_jax.vrl_sgd(optax.polyak_sgd()).transform.init(_params())


def test_an_error_in_the_optimizer_is_not_reported_as_nonlinear():
  def broken(count):
    raise ZeroDivisionError('of the schedule')

  with pytest.raises(ZeroDivisionError, match='of the schedule'):
    vrl_jax.vrl_sgd(optax.sgd(broken)).transform.init(_params())


def _noise():
  return optax.add_noise(0.01, 0.0, jax.random.key(0))


@pytest.mark.parametrize(
  'wrap', [lambda f: f, jax.jit, lambda f: lambda x: jax.vmap(f)(jax.tree.map(lambda a: a[None], x))]
)
def test_added_noise_is_refused_with_advice(wrap):
  algorithm = vrl_jax.vrl_sgd(optax.chain(_noise(), optax.sgd(0.1)))
  with pytest.raises(ValueError, match='updates the model even if the gradient is zero.*precede.*assume_linear=True'):
    wrap(algorithm.transform.init)(_params())


def test_noise_before_delta_does_not_change_it():
  algorithm = vrl_jax.precede(_noise(), vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name='w'))
  params, grads = jnp.zeros((2, 3)), jnp.array([[1.0] * 3, [3.0] * 3])
  state = jax.vmap(algorithm.transform.init)(params)
  updates, state = jax.vmap(algorithm.transform.update)(grads, state, params)
  _, (_, state) = jax.vmap(algorithm.communicate, axis_name='w')(updates, state)
  np.testing.assert_allclose(state.delta, [[-1.0] * 3, [1.0] * 3], atol=1e-5)  # equal noise cancels
