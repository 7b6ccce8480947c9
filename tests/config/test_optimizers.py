"""From config fields to the inner optimizer."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrl_jax.config.optimizers import SCHEDULES, clipping, follows_length, inner_optimizer, learning_rate
from vrl_jax.errors import UserError


def _config(**fields):
  defaults = {
    'optimizer': 'sgd',
    'optimizer_kwargs': None,
    'learning_rate': 0.8,
    'schedule': 'constant',
    'schedule_kwargs': None,
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


def test_an_optimizer_of_optax():
  assert _steps([2.0, 4.0], optimizer='optax.sgd', optimizer_kwargs={'momentum': 0.5}) == _steps(
    [2.0, 4.0], momentum=0.5
  )
  # The sign of the gradient, decoupled weight decay: 1 - 0.5 (1 + 0.25) = 0.375, then 0.375 - 0.5 (1 + 0.25 · 0.375).
  lion = {'weight_decay': 0.25}
  assert _steps([2.0, 4.0], optimizer='optax.lion', optimizer_kwargs=lion) == [0.375, -0.171875]


def test_a_schedule_of_optax():
  """In the kwargs, `learning_rate` and `steps` stand for those of the run."""
  kwargs = {'init_value': 0.0, 'peak_value': 'learning_rate', 'warmup_steps': 2, 'decay_steps': 'steps'}
  rates = _rates(6, schedule='optax.warmup_cosine_decay_schedule', schedule_kwargs=kwargs)
  np.testing.assert_allclose(rates, [0, 0.4, 0.8, 0.4 + 0.4 * np.sqrt(0.5), 0.4, 0.4 - 0.4 * np.sqrt(0.5)], rtol=1e-6)
  drops = {'init_value': 'learning_rate', 'boundaries_and_scales': {'2': 0.5}}  # as JSON stores the key 2
  rates = _rates(4, schedule='optax.piecewise_constant_schedule', schedule_kwargs=drops)
  np.testing.assert_allclose(rates, [0.8, 0.8, 0.4, 0.4], rtol=1e-6)


OWN = """
import jax.numpy as jnp
import optax


def make_schedule(start):
  return lambda step: start / (1 + step)


def make_optimizer(learning_rate, *, scale=1.0):
  if scale < 0:
    raise ValueError('scale is negative')
  return optax.chain(optax.scale(scale), optax.sgd(learning_rate))


def vector(start):
  return lambda step: start * jnp.ones(2)


def broken(start):
  return lambda step: start / step.nothing
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
  (tmp_path / 'my_rates.py').write_text(OWN)
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)


def test_a_factory_of_the_user(own_module):
  fields = {'optimizer': 'my_rates:make_optimizer', 'optimizer_kwargs': {'scale': 2.0}}
  fields |= {'schedule': 'my_rates:make_schedule', 'schedule_kwargs': {'start': 0.5}}
  assert _steps([1.0, 1.0], start=0.0, **fields) == [-1.0, -1.5]


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'optimizer': 'optax.lien'}, "optimizer='optax.lien': the module 'optax' has no 'lien'; did you mean 'lion'?"),
    ({'optimizer': 'nowhere:make'}, "optimizer='nowhere:make': there is no module 'nowhere'"),
    (
      {'optimizer': 'optax:lion', 'optimizer_kwargs': {'b3': 1}},
      "unexpected keyword argument 'b3'; it takes learning_",
    ),
    ({'optimizer': 'optax.__version__'}, "optimizer='optax.__version__': is a str, must be a function"),
    ({'optimizer': 'optax.constant_schedule'}, 'returns a function, must return an optax.GradientTransformation'),
    (
      {'optimizer': 'my_rates:make_optimizer', 'optimizer_kwargs': {'scale': -1}},
      "optimizer='my_rates:make_optimizer' raises ValueError: scale is negative (my_rates.py, line 12)",
    ),
    ({'optimizer': 'optax.lion', 'momentum': 0.9}, "momentum=0.9 is not an option of optimizer='optax.lion'"),
    (
      {'optimizer_kwargs': {'b1': 0.9}},
      "optimizer_kwargs={'b1': 0.9} is not an option of optimizer='sgd', which has no",
    ),
    ({'schedule': 'optax.linear_schedule'}, "missing a required argument: 'init_value'"),
    ({'schedule': 'optax.linear_schedule', 'warmup_steps': 5}, 'warmup_steps=5 is not an option of schedule='),
    ({'schedule': 'my_rates:vector', 'schedule_kwargs': {'start': 1.0}}, 'must return a number'),
    ({'schedule': 'my_rates:broken', 'schedule_kwargs': {'start': 1.0}}, 'its schedule raises AttributeError'),
    ({'schedule': 'math:floor', 'schedule_kwargs': {}}, "missing a required argument: 'x'"),
    ({'schedule': 'time:time'}, "schedule='time:time' returns 1"),
  ],
)
def test_mistakes_are_one_line(own_module, fields, message):
  config = _config(**fields)
  with pytest.raises(UserError) as error:
    inner_optimizer(config, 10)
  assert message in str(error.value)
  assert '\n' not in str(error.value)


def test_which_schedules_follow_the_length():
  assert [follows_length({'schedule': name}) for name in SCHEDULES] == [False, True, True]
  follows = lambda **kwargs: follows_length({'schedule': 'optax.cosine_decay_schedule', 'schedule_kwargs': kwargs})
  assert follows(init_value='learning_rate', decay_steps='steps')
  assert not follows(init_value='learning_rate', decay_steps=1000)
