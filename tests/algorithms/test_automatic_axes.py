"""Fragments and few bits between workers of several devices: each device sends its part."""

import jax
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import vrl_jax
from vrl_jax.accounting.hlo import collectives

WORKERS, DEVICES, SHAPE = 2, 4, (64, 32)
WAYS = {
  'fragments': (lambda a: vrl_jax.streaming(a, 2), 4),
  'bfloat16': (lambda a: vrl_jax.quantised(a, 16), 2),
  '4 bits': (lambda a: vrl_jax.quantised(a, 4), 0.5 + 4 / 256),  # a scale for 256 numbers
}


def rounds(algorithm, divide):
  """`(params, target) -> (params, Δ)` of one worker: two periods of three steps."""

  def run(x, target):
    state = algorithm.transform.init(x)
    for _ in range(2):
      for step in range(1, 4):
        updates, state = algorithm.transform.update(x - target, state, x)
        x = divide(optax.apply_updates(x, updates))
        if communicate := dict(algorithm.communications(3)).get(step):
          x, state = communicate(x, state)
    return divide(x), divide(algorithm.correction(state))

  return run


@pytest.mark.parametrize('way', WAYS)
def test_each_device_sends_its_part_and_the_trajectory_is_that_of_one_device(way):
  combinator, bytes_per_number = WAYS[way]
  algorithm = combinator(vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name='workers'))
  mesh = jax.make_mesh((WORKERS, DEVICES), ('workers', 'fsdp'), axis_types=(AxisType.Auto,) * 2)
  x, targets = np.zeros(SHAPE, np.float32), np.random.default_rng(0).normal(size=(WORKERS, *SHAPE)).astype(np.float32)
  on_one = jax.vmap(rounds(algorithm, lambda x: x), in_axes=(None, 0), axis_name='workers')
  wanted = jax.jit(on_one)(x, targets)

  divide = lambda x: jax.lax.with_sharding_constraint(x, P('fsdp'))
  of_island = lambda x, target: tuple(out[None] for out in rounds(algorithm, divide)(x, target[0]))
  specs = {'in_specs': (P(), P('workers')), 'out_specs': P('workers'), 'axis_names': {'workers'}, 'check_vma': False}
  mapped = jax.jit(jax.shard_map(of_island, mesh=mesh, **specs))
  put = lambda array, *axes: jax.device_put(array, NamedSharding(mesh, P(*axes)))
  args = put(x, 'fsdp'), put(targets, 'workers', 'fsdp')
  compiled = mapped.lower(*args).compile()
  out = compiled(*args)
  # Equal up to float rounding, or to one step of the encoding where that decides how a number is rounded.
  tolerance = 1e-6 if way == 'fragments' else 0.02
  for ours, expected in zip(out, wanted):
    np.testing.assert_allclose(ours, expected, atol=tolerance)
  assert np.abs(np.asarray(out[1]).sum(axis=0)).max() < 1e-5

  between = [c for c in collectives(compiled.as_text()) if not c.is_inside(DEVICES)]
  sent = sum(c.reduced(WORKERS) for c in between) / 2  # of two rounds
  assert sent == bytes_per_number * np.prod(SHAPE) / DEVICES
