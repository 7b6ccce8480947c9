"""Steps with tiled updates agree with the steps without tiles."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import quadratics
from support.algorithms import every_kind

import vrl_jax
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.cpu import worker_order
from vrl_jax.cpu.tiled_updates import number_of_tiles, tile_updates
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.placement import place_workers

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
  """Three steps agree with those without tiles, and the program has tiles or not (None: either)."""
  tiled_step = tile_updates(step, TILE)
  assert tiled is None or _is_tiled(tiled_step, state, *args) == tiled
  expected = found = state
  for _ in range(3):
    expected, found = step(expected, *args), jax.jit(tiled_step)(found, *args)
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)


@pytest.mark.parametrize(
  ('optimizer', 'tiled'),
  [
    (optax.sgd(0.1), True),
    (optax.sgd(optax.linear_schedule(0.1, 0.01, 10), momentum=0.9, nesterov=True), True),
    (optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1, momentum=0.9)), True),
    (optax.chain(optax.clip(0.01), optax.sgd(0.1)), False),  # jnp.clip is a separate function in the jaxpr
    (optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)), False),
    (optax.lars(0.1), False),
    (
      optax.adam(0.1),
      None,
    ),  # whether its bias correction is a separate function in the jaxpr depends on optax's version
  ],
)
def test_optimizers(optimizer, tiled):
  params = _params(INPUTS, HIDDEN, CLASSES)
  _check(_step(optimizer), (params, optimizer.init(params)), _batch(), tiled=tiled)


def test_a_step_of_vrl_sgd_by_numpy():
  """x - γ(g - Δ + λx), with the gradient of one layer and a square loss in NumPy."""
  w, delta = _params(INPUTS, HIDDEN)[0], _params(INPUTS, HIDDEN)[0]
  x, y = rng.normal(size=(BATCH, INPUTS)), rng.normal(size=(BATCH, HIDDEN))
  loss = lambda w, x, y: 0.5 * jnp.sum((x @ w - y) ** 2)
  step = lambda w, delta, x, y: w - 0.1 * (jax.grad(loss)(w, x, y) - delta + 0.01 * w)
  assert _is_tiled(tile_updates(step, TILE), w, delta, x, y)
  expected = w - 0.1 * (x.T @ (x @ w - y) - delta + 0.01 * w)
  np.testing.assert_allclose(tile_updates(step, TILE)(w, delta, x, y), expected, rtol=1e-12, atol=1e-12)


def test_layers_of_one_shape_share_a_loop():
  optimizer, params = optax.sgd(0.1, momentum=0.9), _params(INPUTS, HIDDEN, HIDDEN, HIDDEN, CLASSES)
  state = params, optimizer.init(params)
  _check(_step(optimizer), state, _batch(), tiled=True)
  program = str(jax.make_jaxpr(tile_updates(_step(optimizer), TILE))(state, _batch()))
  assert program.count(f'f64[4,{INPUTS}] = dot_general') + program.count(f'f64[{HIDDEN},4] = dot_general') == 3
  assert program.count('scan[') == 2  # one for [12, 8], one for the two [8, 8]


def test_products_with_a_batch_axis():
  """Kernels of two heads, [2, inputs, hidden]: tiled along the heads."""
  w, x = rng.normal(size=(2, INPUTS, HIDDEN)), rng.normal(size=(2, BATCH, INPUTS))
  loss = lambda w, x: jnp.sum(jnp.tanh(jnp.einsum('hbi,hij->hbj', x, w)))
  step = lambda w, x: w - 0.1 * jax.grad(loss)(w, x)
  tiled_step = tile_updates(step, w.nbytes // 2)
  assert f'f64[1,{INPUTS},{HIDDEN}]' in str(jax.make_jaxpr(tiled_step)(w, x))
  np.testing.assert_allclose(tiled_step(w, x), step(w, x), rtol=1e-9, atol=1e-12)


def _symmetric(w, x):
  """Reads columns of the old matrix for rows of the new one."""
  return w - 0.1 * (x.T @ jnp.tanh(x @ w) + w.T)


def _with_norm(state, x):
  w, _ = state
  gradient = x.T @ jnp.tanh(x @ w)
  return w - 0.1 * gradient, jnp.sum(gradient**2)


def _old_as_operand(w, x):
  return w - 0.1 * (x.T @ x) @ w


@pytest.mark.parametrize('step', [_symmetric, _with_norm, _old_as_operand])
def test_a_matrix_that_is_needed_at_full_size_is_not_tiled(step):
  w, x = rng.normal(size=(HIDDEN, HIDDEN)), rng.normal(size=(BATCH, HIDDEN))
  _check(step, (w, np.float64(0)) if step is _with_norm else w, x, tiled=False)


def test_a_scalar_broadcast_to_a_matrix():
  def step(state, x):
    w, rate = state
    return w - jnp.full_like(w, rate) * (x.T @ jnp.tanh(x @ w)), rate / 2

  w, x = rng.normal(size=(INPUTS, HIDDEN)), rng.normal(size=(BATCH, INPUTS))
  _check(step, (w, np.float64(0.1)), x, tiled=True)


def test_each_value_is_visited_once():
  def step(w, x):
    gradient = x.T @ jnp.tanh(x @ w)
    for _ in range(40):  # 2^40 paths from the result to the product
      gradient = gradient + 0.5 * gradient
    return w - 1e-8 * gradient

  w, x = rng.normal(size=(INPUTS, HIDDEN)), rng.normal(size=(BATCH, INPUTS))
  _check(step, w, x, tiled=True)


def test_a_step_may_return_the_old_matrix():
  def step(state, x):
    w, _ = state
    return w - 0.1 * x.T @ jnp.tanh(x @ w), w

  w, x = rng.normal(size=(HIDDEN, HIDDEN)), rng.normal(size=(BATCH, HIDDEN))
  _check(step, (w, np.zeros_like(w)), x, tiled=True)


def test_unused_values_do_not_prevent_tiles():
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
    ((2048, 1100), 9011200, None, 16),  # nine tiles would suffice, sixteen divide the rows
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


def _run(name, **options):
  params, batches = _data()
  placement = place_workers(WORKERS, 2)
  supply = quadratics.own_data(placement, batches)
  inner = optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1, momentum=0.5))
  algorithm = vrl_jax.ALGORITHMS[name](inner, axis_name=AXES)
  loss = lambda params, frozen, batch, rng: _loss(params, batch)
  engine = Engine(algorithm, loss, placement, supply, **options)
  items, count = (
    placement.split(quadratics.places(placement, ROUNDS, PERIOD)),
    placement.replicate(np.int32(ROUNDS)),
  )
  text = engine.lower('run', engine.init(params), items, count).as_text()
  return engine.run(engine.init(params), items, ROUNDS)[0], text


@every_kind
def test_tiles_do_not_change_the_trajectory(name, monkeypatch):
  expected, _ = _run(name, workers_at_once=WORKERS)
  monkeypatch.setattr(worker_order, '_LARGE_MODEL', 0)
  found, text = _run(name, tile_bytes=TILE)
  assert (f'tensor<4x{HIDDEN}xf64>' in text) == (name not in ('s_sgd', 'd2', 'extra'))  # their steps communicate
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)
