"""The traffic of every algorithm: in the compiled round, and counted from its jaxprs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import numpy_reference as reference
from support import quadratics
from support.hlo import collectives

import vrl_jax
from vrl_jax.accounting.traffic import Traffic, traffic
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AXES, OnDevice

PARAMS = quadratics.start(np.zeros(7), np.float32)
SHAPES = sorted(np.shape(x) for x in jax.tree.leaves(PARAMS))
ELEMENTS = 7
every_algorithm = pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)


def _in_program(algorithm, *, workers, devices, period=3, program='run'):
  engine = quadratics.make_engine(algorithm, reference.heterogeneous(workers), devices=devices, dtype=np.float32)
  more = (engine.placement.replicate(np.int32(2)),) if program == 'run' else ()
  compiled = engine.compile(program, engine.init(PARAMS), quadratics.items(engine, period, count=2), *more)
  return collectives(compiled.as_text())


def _make(name, inner=None, **options):
  return vrl_jax.ALGORITHMS[name](inner or optax.sgd(0.1, momentum=0.5), axis_name=AXES, **options)


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd', 'easgd'])
@pytest.mark.parametrize('devices', [8, 2])
def test_each_parameter_is_reduced_once_a_round_after_the_local_steps(name, devices):
  found = _in_program(_make(name), workers=8, devices=devices)
  assert {c.kind for c in found} == {'all-reduce'}
  assert {c.depth for c in found} == {1}  # in the loop over rounds only
  assert all(c.after_loop for c in found)
  assert sorted(shape for c in found for shape in c.shapes) == SHAPES


@pytest.mark.parametrize('devices', [8, 2])
def test_s_sgd_reduces_the_gradient_once_a_step(devices):
  found = _in_program(_make('s_sgd'), workers=8, devices=devices)
  assert {c.kind for c in found} == {'all-reduce'}
  assert {c.depth for c in found} == {2}  # in the scan of steps in the loop over rounds
  assert sorted(shape for c in found for shape in c.shapes) == SHAPES


@pytest.mark.parametrize('name', ['local_sgd', 'vrl_sgd'])
def test_averaged_buffers_are_sent(name):
  found = _in_program(_make(name, buffers='mean'), workers=8, devices=2)
  assert sorted(shape for c in found for shape in c.shapes) == sorted(SHAPES * 2)
  assert traffic(_make(name, buffers='mean'), PARAMS).per_round == 2 * 4 * ELEMENTS
  assert traffic(_make(name, buffers='reset'), PARAMS).per_round == 4 * ELEMENTS


def test_the_measure_program_communicates_after_the_steps_only():
  found = _in_program(_make('vrl_sgd'), workers=8, devices=2, program='measure')
  assert {c.depth for c in found} == {0}
  assert all(c.after_loop for c in found)


@every_algorithm
def test_the_compiled_round_sends_the_counted_traffic(name):
  found = _in_program(_make(name), workers=4, devices=4)
  counted = traffic(_make(name), PARAMS)
  reduced = [c for c in found if c.kind != 'collective-permute']
  assert sum(c.payload for c in reduced if c.depth == 2) == counted.per_step
  assert sum(c.payload for c in reduced if c.depth == 1) == counted.per_round
  assert sum(c.payload for c in found if c.kind == 'collective-permute' and c.depth == 2) == counted.to_neighbours
  assert {c.depth for c in found} <= {1, 2}
  assert found


@pytest.mark.parametrize(
  ('name', 'options', 'expected'),
  [
    ('s_sgd', {}, Traffic(4 * ELEMENTS, 0)),
    ('local_sgd', {}, Traffic(0, 4 * ELEMENTS)),
    ('local_sgd', {'buffers': 'mean'}, Traffic(0, 2 * 4 * ELEMENTS)),
    ('easgd', {}, Traffic(0, 4 * ELEMENTS)),
    ('vrl_sgd', {}, Traffic(0, 4 * ELEMENTS)),
    ('scaffold', {'participation': 0.25}, Traffic(0, 2 * 4 * ELEMENTS, participation=0.25)),
    ('d2', {}, Traffic(0, 0, to_neighbours=2 * 4 * ELEMENTS)),
    ('d2', {'mixing': 'complete'}, Traffic(4 * ELEMENTS, 0)),
  ],
)
def test_traffic_from_arrays_or_shapes_and_behind_precede(name, options, expected):
  algorithm = _make(name, **options)
  assert traffic(algorithm, PARAMS) == expected
  assert traffic(algorithm, jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), PARAMS)) == expected
  assert traffic(vrl_jax.precede(optax.clip_by_global_norm(1.0), algorithm), PARAMS) == expected


def test_traffic_with_an_outer_optimizer():
  scaffold = _make('scaffold', participation=0.5)
  wrapped = vrl_jax.with_outer_optimizer(scaffold, optax.sgd(0.5))
  assert traffic(wrapped, PARAMS) == traffic(scaffold, PARAMS) == Traffic(0, 2 * 4 * ELEMENTS, participation=0.5)


def test_narrow_params_are_sent_as_float32():
  narrow = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), PARAMS)
  assert traffic(_make('vrl_sgd', optax.sgd(0.1)), narrow).per_round == 4 * ELEMENTS


def test_float64_params_are_sent_as_float64():
  with jax.enable_x64(True):
    assert traffic(_make('vrl_sgd', optax.sgd(0.1)), quadratics.start(np.zeros(7))).per_round == 8 * ELEMENTS


def test_communications():
  assert Traffic(per_step=0, per_round=28).communications(steps=100, rounds=10) == 10
  assert Traffic(per_step=28, per_round=0).communications(steps=100, rounds=10) == 100
  assert Traffic(per_step=0, per_round=0, to_neighbours=28).communications(steps=100, rounds=10) == 100
  assert Traffic(per_step=28, per_round=28).communications(steps=100, rounds=10) == 110
  assert Traffic(per_step=0, per_round=0).communications(steps=100, rounds=10) == 0


@pytest.mark.parametrize(
  ('traffic', 'workers', 'expected'),
  [
    (Traffic(per_step=0, per_round=400), 8, 7_000),  # 2 · 7/8 of 10 · 400 bytes
    (Traffic(per_step=400, per_round=0), 8, 70_000),  # and of 100 · 400
    (Traffic(per_step=400, per_round=400), 8, 77_000),
    (Traffic(per_step=0, per_round=0, to_neighbours=400), 8, 40_000),
    (Traffic(per_step=0, per_round=400, participation=0.25), 8, 1_750),
    (Traffic(per_step=0, per_round=400, participation=0.01), 8, 875),  # at least one worker
    (Traffic(per_step=0, per_round=400), 2, 4_000),  # 2 · 1/2 of 10 · 400
    (Traffic(per_step=400, per_round=400, to_neighbours=400), 1, 0),
  ],
)
def test_ring_bytes(traffic, workers, expected):
  assert traffic.ring_bytes(steps=100, rounds=10, workers=workers) == expected


def test_ring_bytes_are_exact_for_large_runs():
  # A model of 2.3 M floats, a million steps: 9.2e12 bytes reduced, 2 * 7/8 of it sent.
  assert Traffic(per_step=9_200_000, per_round=0).ring_bytes(10**6, 0, 8) == 16_100_000_000_000


@pytest.mark.parametrize('workers', [1, 4, 65])  # 65 is too many for a chain of additions
@pytest.mark.parametrize('devices', [1, 2])
def test_the_mean_over_devices_and_workers(workers, devices):
  x = np.random.default_rng(0).normal(size=(devices, workers, 3, 2)).astype(np.float32)
  tree = {'a': jnp.asarray(x, jnp.bfloat16), 'b': jnp.asarray(x)}
  over_devices = jax.pmap(jax.vmap(lambda t: mean_over_workers(t, AXES), axis_name=AXES[1]), axis_name=AXES[0])
  mean = over_devices(tree)
  for name, leaf in mean.items():
    assert leaf.dtype == jnp.float32
    expected = np.asarray(tree[name], np.float64).mean((0, 1))
    np.testing.assert_allclose(leaf, np.broadcast_to(expected, leaf.shape), atol=1e-6)


def test_the_mean_under_another_vmap_is_over_the_workers_only():
  x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
  workers = jax.vmap(lambda t: mean_over_workers(t, OnDevice('w')), axis_name='w')
  np.testing.assert_allclose(jax.vmap(workers)(x), np.broadcast_to(x.mean(1, keepdims=True), x.shape), atol=1e-6)
  other = jax.vmap(jax.vmap(lambda t: mean_over_workers(t, OnDevice('w'))), axis_name='w')
  np.testing.assert_allclose(other(x), np.broadcast_to(x.mean(0), x.shape), atol=1e-6)
