"""From config fields to the inner optimizer."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrl_jax.config.optimizers import clipping, inner_optimizer, learning_rate
from vrl_jax.errors import UserError


def _config(**fields):
  defaults = {
    'optimizer': 'sgd',
    'learning_rate': 0.8,
    'schedule': 'constant',
    'warmup_steps': 0,
    'momentum': 0.0,
    'nesterov': False,
    'weight_decay': 0.0,
    'clip_norm': None,
  }
  return types.SimpleNamespace(**defaults | fields)


@pytest.fixture(autouse=True)
def ordinary_promotion():
  with jax.numpy_dtype_promotion('standard'):  # optax's schedules mix integers and floats
    yield


def _rates(steps, **fields):
  rate = learning_rate(_config(**fields), steps)
  return [float(rate(jnp.asarray(t))) for t in range(steps)]


def test_constant_is_a_number():
  assert learning_rate(_config(), 10) == 0.8


def test_linear():
  np.testing.assert_allclose(_rates(4, schedule='linear'), [0.8, 0.6, 0.4, 0.2], rtol=1e-6)


def test_cosine():
  # 0.4 (1 + cos(π t / 4))
  expected = [0.8, 0.4 + 0.4 * np.sqrt(0.5), 0.4, 0.4 - 0.4 * np.sqrt(0.5)]
  np.testing.assert_allclose(_rates(4, schedule='cosine'), expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('schedule', 'after'),
  [
    ('constant', [0.8] * 8),
    ('linear', [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
  ],
)
def test_warm_up_rises_from_0_and_then_begins_the_schedule(schedule, after):
  rates = _rates(12, schedule=schedule, warmup_steps=4)  # the schedule has the 8 steps that are left
  np.testing.assert_allclose(rates[:4], [0.0, 0.2, 0.4, 0.6], rtol=1e-6)
  np.testing.assert_allclose(rates[4:], after, rtol=1e-6)


def test_warm_up_over_all_steps():
  np.testing.assert_allclose(_rates(4, schedule='linear', warmup_steps=4), [0.0, 0.2, 0.4, 0.6], rtol=1e-6)


def test_unknown_schedule():
  with pytest.raises(UserError, match="schedule='cubic', must be one of constant, linear, cosine"):
    learning_rate(_config(schedule='cubic'), 10)


def _steps(gradients, start=1.0, **fields):
  inner = inner_optimizer(_config(learning_rate=0.5, **fields), 10)
  x, path = jnp.asarray(start), []
  state = inner.init(x)
  for gradient in gradients:
    updates, state = inner.update(jnp.asarray(gradient), state, x)
    x = x + updates
    path.append(float(x))
  return path


def test_plain():
  assert _steps([2.0, 4.0]) == [0.0, -2.0]


def test_momentum():
  # m = 2, then 4 + 0.5 * 2 = 5.
  assert _steps([2.0, 4.0], momentum=0.5) == [0.0, -2.5]


def test_nesterov():
  # 2 + 0.5 * 2 = 3, then m = 5 and 4 + 0.5 * 5 = 6.5.
  assert _steps([2.0, 4.0], momentum=0.5, nesterov=True) == [-0.5, -3.75]


def test_weight_decay_enters_the_momentum():
  # x = 1: g = 2 + 0.25 = 2.25, m = 2.25, x = -0.125. Then g = 4 - 0.03125 = 3.96875, m = 5.09375, x = -2.671875.
  assert _steps([2.0, 4.0], momentum=0.5, weight_decay=0.25) == [-0.125, -2.671875]


def test_clipping_is_of_the_global_norm():
  clip = clipping(_config(clip_norm=1.0))
  grads = {'a': jnp.array([3.0]), 'b': jnp.array([4.0])}
  clipped, _ = clip.update(grads, clip.init(grads))
  np.testing.assert_allclose([clipped['a'][0], clipped['b'][0]], [0.6, 0.8], rtol=1e-6)
