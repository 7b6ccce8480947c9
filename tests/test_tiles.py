"""Steps that compute large matrices tile by tile are the steps that compute them as a whole."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import quadratics

import vrl_jax
from vrl_jax import groups, rounds
from vrl_jax.arrangement import arrange
from vrl_jax.tiles import in_tiles, number_of_tiles

INPUTS, HIDDEN, CLASSES, BATCH = 12, 8, 3, 5
TILE = 4 * HIDDEN * 8  # four rows of the first layer
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _float64():
  with jax.enable_x64(True), jax.numpy_dtype_promotion('standard'):  # Adam needs the latter
    yield


def _params(*sizes):
  return [rng.normal(size=shape) for shape in zip(sizes, sizes[1:])]


def _batch(*lead):
  x = rng.normal(size=(*lead, BATCH, INPUTS))
  return x, rng.integers(0, CLASSES, (*lead, BATCH)).astype(np.int32)


def _loss(params, batch):
  x, label = batch
  for w in params[:-1]:
    x = jnp.tanh(x @ w)
  return optax.softmax_cross_entropy_with_integer_labels(x @ params[-1], label).mean()


def _step(optimizer):
  def step(state, batch):
    params, inner = state
    grads = jax.grad(_loss)(params, batch)
    updates, inner = optimizer.update(grads, inner, params)
    return optax.apply_updates(params, updates), inner

  return step


def _is_tiled(step, *args):
  return f'f64[4,{HIDDEN}]' in str(jax.make_jaxpr(step)(*args))


def _check(step, state, *args, tiled):
  """Three steps give what the whole matrices give, and the program has tiles or not (None: either)."""
  in_parts = in_tiles(step, TILE)
  assert tiled is None or _is_tiled(in_parts, state, *args) == tiled
  expected = found = state
  for _ in range(3):
    expected, found = step(expected, *args), jax.jit(in_parts)(found, *args)
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)


@pytest.mark.parametrize(
  ('optimizer', 'tiled'),
  [
    (optax.sgd(0.1), True),
    (optax.sgd(optax.linear_schedule(0.1, 0.01, 10), momentum=0.9, nesterov=True), True),
    (optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1, momentum=0.9)), True),
    (optax.chain(optax.clip(0.01), optax.sgd(0.1)), False),  # jnp.clip is a function of its own in the program
    (optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)), False),
    (optax.lars(0.1), False),
    (optax.adam(0.1), None),  # whether its bias is corrected in a function of its own depends on optax's version
  ],
)
def test_optimizers(optimizer, tiled):
  params = _params(INPUTS, HIDDEN, CLASSES)
  _check(_step(optimizer), (params, optimizer.init(params)), _batch(), tiled=tiled)


def test_a_step_of_vrl_sgd_by_numpy():
  """x - γ(g - Δ + λx), the gradient of one layer with a square loss written out."""
  w, delta = _params(INPUTS, HIDDEN)[0], _params(INPUTS, HIDDEN)[0]
  x, y = rng.normal(size=(BATCH, INPUTS)), rng.normal(size=(BATCH, HIDDEN))
  loss = lambda w, x, y: 0.5 * jnp.sum((x @ w - y) ** 2)
  step = lambda w, delta, x, y: w - 0.1 * (jax.grad(loss)(w, x, y) - delta + 0.01 * w)
  assert _is_tiled(in_tiles(step, TILE), w, delta, x, y)
  expected = w - 0.1 * (x.T @ (x @ w - y) - delta + 0.01 * w)
  np.testing.assert_allclose(in_tiles(step, TILE)(w, delta, x, y), expected, rtol=1e-12, atol=1e-12)


def test_layers_of_one_shape_share_a_loop():
  optimizer, params = optax.sgd(0.1, momentum=0.9), _params(INPUTS, HIDDEN, HIDDEN, HIDDEN, CLASSES)
  state = params, optimizer.init(params)
  _check(_step(optimizer), state, _batch(), tiled=True)
  program = str(jax.make_jaxpr(in_tiles(_step(optimizer), TILE))(state, _batch()))
  assert program.count(f'f64[4,{INPUTS}] = dot_general') + program.count(f'f64[{HIDDEN},4] = dot_general') == 3
  assert program.count('scan[') == 2  # one for [12, 8], one for the two [8, 8]


def test_products_with_a_batch_axis():
  """Kernels of two heads, [2, inputs, hidden]: cut along the heads."""
  w, x = rng.normal(size=(2, INPUTS, HIDDEN)), rng.normal(size=(2, BATCH, INPUTS))
  loss = lambda w, x: jnp.sum(jnp.tanh(jnp.einsum('hbi,hij->hbj', x, w)))
  step = lambda w, x: w - 0.1 * jax.grad(loss)(w, x)
  in_parts = in_tiles(step, w.nbytes // 2)
  assert f'f64[1,{INPUTS},{HIDDEN}]' in str(jax.make_jaxpr(in_parts)(w, x))
  np.testing.assert_allclose(in_parts(w, x), step(w, x), rtol=1e-9, atol=1e-12)


def _symmetric(w, x):
  """Needs columns of the old matrix for rows of the new one."""
  return w - 0.1 * (x.T @ jnp.tanh(x @ w) + w.T)


def _with_norm(state, x):
  w, _ = state
  gradient = x.T @ jnp.tanh(x @ w)
  return w - 0.1 * gradient, jnp.sum(gradient**2)


def _old_as_operand(w, x):
  return w - 0.1 * (x.T @ x) @ w


@pytest.mark.parametrize('step', [_symmetric, _with_norm, _old_as_operand])
def test_what_must_be_known_as_a_whole_stays_whole(step):
  w, x = rng.normal(size=(HIDDEN, HIDDEN)), rng.normal(size=(BATCH, HIDDEN))
  _check(step, (w, np.float64(0)) if step is _with_norm else w, x, tiled=False)


def test_a_number_spread_over_a_matrix():
  def step(state, x):
    w, rate = state
    return w - jnp.full_like(w, rate) * (x.T @ jnp.tanh(x @ w)), rate / 2

  w, x = rng.normal(size=(INPUTS, HIDDEN)), rng.normal(size=(BATCH, INPUTS))
  _check(step, (w, np.float64(0.1)), x, tiled=True)


def test_a_value_that_is_used_twice_again_and_again_is_looked_at_once():
  def step(w, x):
    gradient = x.T @ jnp.tanh(x @ w)
    for _ in range(40):  # 2^40 ways from the result to the product
      gradient = gradient + 0.5 * gradient
    return w - 1e-8 * gradient

  w, x = rng.normal(size=(INPUTS, HIDDEN)), rng.normal(size=(BATCH, INPUTS))
  _check(step, w, x, tiled=True)


def test_an_old_matrix_can_be_kept():
  def step(state, x):
    w, _ = state
    return w - 0.1 * x.T @ jnp.tanh(x @ w), w

  w, x = rng.normal(size=(HIDDEN, HIDDEN)), rng.normal(size=(BATCH, HIDDEN))
  _check(step, (w, np.zeros_like(w)), x, tiled=True)


def test_what_nobody_asks_for_does_not_keep_a_matrix_whole():
  def step(w, x):
    gradient = x.T @ jnp.tanh(x @ w)
    _ = jnp.sum(gradient)
    return w - 0.1 * gradient

  w, x = rng.normal(size=(INPUTS, HIDDEN)), rng.normal(size=(BATCH, INPUTS))
  _check(step, w, x, tiled=True)


@pytest.mark.parametrize(
  ('shape', 'size', 'tile', 'count'),
  [
    ((2048, 1024), 8 << 20, None, 8),
    ((2048, 512), 4 << 20, None, 4),
    ((2048, 256), 2 << 20, None, 1),
    ((2048, 256), 2 << 20, 1 << 20, 2),
    ((2048, 1024), 8 << 20, 0, 1),
    ((2039, 1024), 8 << 20, None, 1),  # a prime number of rows
    ((2048, 1100), 9011200, None, 16),  # nine would do, sixteen divides
    ((3, 3, 512, 512), 9 << 20, None, 1),  # rows of 3 MB
    ((4 << 20,), 16 << 20, None, 1),
  ],
)
def test_number_of_tiles(shape, size, tile, count):
  assert number_of_tiles(shape, size, tile) == count


WORKERS, PERIOD, ROUNDS = 4, 3, 2


@functools.cache
def _data():
  return _params(INPUTS, HIDDEN, CLASSES), _batch(WORKERS)


def _run(name, **choices):
  params, batches = _data()
  arrangement = arrange(WORKERS, 2)
  supply = quadratics.own_data(arrangement, batches)
  inner = optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1, momentum=0.5))
  algorithm = vrl_jax.ALGORITHMS[name](inner, axis_name=rounds.AXES)
  loss = lambda params, frozen, batch, rng: _loss(params, batch)
  engine = rounds.Engine(algorithm, loss, arrangement, supply, **choices)
  items, count = (
    arrangement.split(quadratics.places(arrangement, ROUNDS, PERIOD)),
    arrangement.replicate(np.int32(ROUNDS)),
  )
  text = engine.lower('run', engine.init(params), items, count).as_text()
  return engine.run(engine.init(params), items, ROUNDS)[0], text


@pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
def test_every_algorithm_has_its_trajectory_in_tiles(name, monkeypatch):
  whole, _ = _run(name, at_once=WORKERS)
  monkeypatch.setattr(groups, '_LARGE_MODEL', 0)
  tiles, text = _run(name, tile_bytes=TILE)
  assert (f'tensor<4x{HIDDEN}xf64>' in text) == (name not in ('s_sgd', 'd2', 'extra'))  # whose steps communicate
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), tiles, whole)
