"""The groups of devices in each of XLA's notations, and on a program of a mesh with manual and automatic axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from vrl_jax.accounting.device_groups import device_groups, replicas_and_partitions
from vrl_jax.accounting.hlo import collectives

GLOBAL = ', use_global_device_ids=true'
BY_ISLAND = ((0, 1, 2, 3), (4, 5, 6, 7))
BETWEEN = ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
  ('attributes', 'groups'),
  [
    ('replica_groups={{0,1,2,3},{4,5,6,7}}', BY_ISLAND),
    ('replica_groups=[2,4]<=[8]', BY_ISLAND),
    ('replica_groups=[4,2]<=[2,4]T(1,0)', BETWEEN),
    ('replica_groups=[2,4]<=[2,2,2]T(1,0,2)', ((0, 1, 4, 5), (2, 3, 6, 7))),
    ("replica_groups=mesh['devices'=2,'island'=4] {'island'}", BY_ISLAND),
    ("replica_groups=mesh['devices'=2,'island'=4] {'devices'}", BETWEEN),
    ("replica_groups=mesh['a'=2,'b'=2,'c'=2] {'a','c'}", ((0, 1, 4, 5), (2, 3, 6, 7))),
    ("replica_groups=mesh['x'=8] {'x':(1)2}", BETWEEN),
    ("replica_groups=mesh['x'=8] {'x':(2)4}", BY_ISLAND),
    ("replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", BETWEEN),
    ("replica_groups=mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", ((3, 1), (2, 0))),
    ('replica_groups={}', (tuple(range(8)),)),
    ('channel_id=3', (tuple(range(8)),)),
  ],
)
def test_notations(attributes, groups):
  assert device_groups('all-reduce', f'channel_id=1, {attributes}{GLOBAL}, to_apply=%add', 1, 8) == groups


@pytest.mark.parametrize(
  ('op', 'attributes', 'groups'),
  [
    # Two replicas of two partitions: device 2 is partition 0 of replica 1.
    ('all-reduce', 'replica_groups={{0,1}}', ((0, 2), (1, 3))),
    ('all-reduce', 'replica_groups={}', ((0, 2), (1, 3))),
    ('all-reduce', 'channel_id=1, replica_groups={{0},{1}}', ((0, 1), (2, 3))),
    ('all-reduce', 'channel_id=1, replica_groups={{0,1}}', ((0, 1, 2, 3),)),
    ('all-to-all', 'channel_id=1, replica_groups={{0,1}}', ((0, 1), (2, 3))),
    ('collective-permute', 'channel_id=1, source_target_pairs={{0,1},{1,0}}', ((0, 1), (1, 0), (2, 3), (3, 2))),
    ('collective-permute', 'source_target_pairs={{0,1}}', ((0, 2), (1, 3))),
  ],
)
def test_what_the_numbers_stand_for(op, attributes, groups):
  assert device_groups(op, attributes, replicas=2, partitions=2) == groups


def test_replicas_and_partitions():
  assert replicas_and_partitions('HloModule jit_f, replica_count=8') == (8, 1)
  assert replicas_and_partitions('HloModule jit_f') == (1, 1)


PROGRAM = """HloModule jit_f, num_partitions=8

ENTRY %main (x: f32[4], y: f32[8]) -> f32[4] {
  %x = f32[4] parameter(0)
  %y = f32[8] parameter(1)
  %inside = f32[4] all-reduce(%x), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%add
  %between = f32[4] all-reduce(%x), channel_id=2, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=%add
  %of_all = f32[4] all-gather(%x), channel_id=3, replica_groups={}, dimensions={0}
  %to_next = f32[8] collective-permute(%y), channel_id=4, source_target_pairs={{0,1},{1,0}}
  ROOT %across = f32[8] collective-permute(%y), channel_id=5, source_target_pairs={{0,1},{3,4}}
}
"""


@pytest.mark.parametrize(
  ('devices_per_worker', 'inside'), [(1, []), (2, [3]), (4, [0, 3]), (8, [0, 1, 2, 3, 4])], ids=str
)
def test_collectives_inside_and_between_islands(devices_per_worker, inside):
  found = collectives(PROGRAM)
  assert [place for place, c in enumerate(found) if c.is_inside(devices_per_worker)] == inside


def test_a_compiled_program_of_islands():
  """A step with the partitioner's own collectives inside the islands, and a mean over them."""
  mesh = jax.make_mesh((2, 4), ('devices', 'island'), axis_types=(AxisType.Auto,) * 2)

  def on_island(x, w):
    def step(w, _):
      gradient = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
      return w - 0.1 * jax.lax.with_sharding_constraint(gradient, P('island')), None

    return jax.lax.pmean(jax.lax.scan(step, w, None, length=3)[0], 'devices')

  fun = jax.shard_map(
    on_island, mesh=mesh, in_specs=(P('devices'), P()), out_specs=P(), axis_names={'devices'}, check_vma=False
  )
  x = jax.device_put(np.ones((64, 32), np.float32), NamedSharding(mesh, P(('devices', 'island'))))
  w = jax.device_put(np.ones((32, 8), np.float32), NamedSharding(mesh, P('island')))
  found = collectives(jax.jit(fun).lower(x, w).compile().as_text())
  between = [c for c in found if not c.is_inside(4)]
  assert [(c.op, c.bytes, c.loops, c.groups) for c in between] == [('all-reduce', 4 * 32 * 8 // 4, 0, BETWEEN)]
  inside = [c for c in found if c.is_inside(4)]
  assert inside and {c.loops for c in inside} == {1} and {c.groups for c in inside} == {BY_ISLAND}
  assert all(not c.is_inside(2) for c in found)
