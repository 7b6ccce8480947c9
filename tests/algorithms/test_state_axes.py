"""as_optax under vmap over a sharded axis of workers: with `state_axes` the communication stays in a branch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import vrl_jax

WORKERS, PERIOD = 4, 3
TARGETS = np.arange(12.0, dtype=np.float32).reshape(WORKERS, 3)
GOSSIP = ('d2', 'extra')  # they send at every step
QUICK = ('vrl_sgd', 'cocod_sgd', 'scaffold')
in_a_branch = pytest.mark.parametrize(
  'name',
  [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in vrl_jax.ALGORITHMS
    if name not in ('s_sgd', *GOSSIP)
  ],
)


def make(name):
  return vrl_jax.as_optax(vrl_jax.ALGORITHMS[name](optax.sgd(0.05, momentum=0.5), axis_name='w'), PERIOD)


def axes_of(tx):
  return vrl_jax.state_axes(jax.eval_shape(tx.init, jnp.zeros(3)))


def mapped_step(tx, axes):
  def step(x, state, target):
    updates, state = tx.update(2 * (x - target), state, x)
    return optax.apply_updates(x, updates), state

  return jax.jit(jax.vmap(step, (0, axes, 0), (0, axes), axis_name='w'))


def start(tx, axes, sharded=False):
  x, targets = jnp.zeros((WORKERS, 3)), jnp.asarray(TARGETS)
  state = jax.vmap(tx.init, out_axes=axes)(x)
  if not sharded:
    return x, state, targets
  specs = P('workers') if axes == 0 else vrl_jax.state_axes(state, P('workers'), P())
  return jax.device_put((x, state, targets), (P('workers'), specs, P('workers')))


def trajectory(step, x, state, targets, steps=2 * PERIOD + 1):
  models = []
  for _ in range(steps):
    x, state = step(x, state, targets)
    models.append(np.asarray(x))
  return np.array(models)


def mesh_of(kind):
  return jax.set_mesh(jax.make_mesh((WORKERS,), ('workers',), axis_types=(kind,)))


@pytest.mark.parametrize('kind', [AxisType.Auto, AxisType.Explicit])
@in_a_branch
def test_the_all_reduce_is_in_a_branch(name, kind):
  tx = make(name)
  expected = trajectory(mapped_step(tx, 0), *start(tx, 0))
  axes = axes_of(tx)
  with mesh_of(kind):
    args = start(tx, axes, sharded=True)
    compiled = mapped_step(tx, axes).lower(*args).compile()
    models = trajectory(compiled, *args)
  np.testing.assert_allclose(models, expected, rtol=2e-6, atol=2e-6)
  text = compiled.as_text()
  computations = text.split('\n\n')
  (with_all_reduce,) = [c for c in computations if ' all-reduce(' in c]
  name_of_branch = with_all_reduce.split()[0]
  assert 'ENTRY' not in with_all_reduce and 'all-gather' not in text
  (conditional,) = [line for line in text.splitlines() if ' conditional(' in line]
  assert name_of_branch in conditional


@pytest.mark.parametrize('name', ['s_sgd', 'vrl_sgd', 'scaffold'])
def test_without_it_explicit_axes_give_the_same_trajectory(name):
  tx = make(name)
  expected = trajectory(mapped_step(tx, 0), *start(tx, 0))
  with mesh_of(AxisType.Explicit):
    models = trajectory(mapped_step(tx, 0), *start(tx, 0, sharded=True))
  np.testing.assert_allclose(models, expected, rtol=2e-6, atol=2e-6)


def test_few_bits_are_refused_in_one_line_where_jax_cannot_send_them():
  quantised = vrl_jax.quantised(vrl_jax.vrl_sgd(optax.sgd(0.05), axis_name='w'), bits=16)
  tx = vrl_jax.as_optax(quantised, PERIOD)
  axes = axes_of(tx)
  with mesh_of(AxisType.Auto):
    models = trajectory(mapped_step(tx, axes), *start(tx, axes, sharded=True))
  np.testing.assert_allclose(models, trajectory(mapped_step(tx, 0), *start(tx, 0)), rtol=2e-6, atol=2e-6)
  with mesh_of(AxisType.Explicit), pytest.raises(ValueError, match='^quantised under jax.vmap on a mesh with Explicit'):
    mapped_step(tx, axes).lower(*start(tx, axes, sharded=True))


def test_it_is_a_select_without_the_axes():
  """What `state_axes` is for."""
  tx = make('vrl_sgd')
  with mesh_of(AxisType.Auto):
    text = mapped_step(tx, 0).lower(*start(tx, 0, sharded=True)).compile().as_text()
  assert ' conditional(' not in text and ' all-reduce(' in text


def test_wrapped_states():
  wrapped = vrl_jax.skip_if_any_not_finite(make('vrl_sgd'), axis_name='w')
  tx = optax.chain(optax.clip_by_global_norm(1.0), wrapped)
  axes = axes_of(tx)
  assert axes[1]._replace(inner=None) == vrl_jax.SkipState(inner=None, skipped=None)
  assert axes[1].inner._replace(algorithm=None) == vrl_jax.AsOptaxState(None, None, None)
  assert set(jax.tree.leaves(axes)) == {0}
  models = trajectory(mapped_step(tx, axes), *start(tx, axes))
  np.testing.assert_allclose(models, trajectory(mapped_step(tx, 0), *start(tx, 0)), rtol=1e-6)
