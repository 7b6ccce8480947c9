"""The HLO reader on the schedules that the compilers of accelerators write."""

import pytest

from vrl_jax.accounting.hlo import Collective, collectives

# As XLA compiles CoCoD-SGD's round for an H100, shortened: the all-reduce runs beside the loop of local steps.
OVERLAPPED = """HloModule jit_run, is_scheduled=true

%step (p: (s32[], f32[100])) -> (s32[], f32[100]) {
  %p = (s32[], f32[100]{0}) parameter(0)
  ROOT %t = (s32[], f32[100]{0}) tuple(%p)
}

%condition (p.1: (s32[], f32[100])) -> pred[] {
  ROOT %less = pred[] constant(false)
}

%round (p.2: (s32[], f32[100])) -> (s32[], f32[100]) {
  %p.2 = (s32[], f32[100]{0}) parameter(0)
  %x = f32[100]{0} get-tuple-element(%p.2), index=1
  %all-reduce-start = f32[100]{0} all-reduce-start(%x), channel_id=1, replica_groups={{0,1}}, to_apply=%add
  %while.1 = (s32[], f32[100]{0}) while(%p.2), condition=%condition, body=%step
  %all-reduce-done = f32[100]{0} all-reduce-done(%all-reduce-start)
  ROOT %t.1 = (s32[], f32[100]{0}) tuple(%while.1, %all-reduce-done)
}

ENTRY %main (x.1: f32[100]) -> (s32[], f32[100]) {
  %x.1 = f32[100]{0} parameter(0)
  %t.2 = (s32[], f32[100]{0}) tuple(%x.1)
  ROOT %while.2 = (s32[], f32[100]{0}) while(%t.2), condition=%condition, body=%round
}
"""
START = '%all-reduce-start = f32[100]{0} all-reduce-start(%x), channel_id=1, replica_groups={{0,1}}, to_apply=%add\n'
LOOP = '%while.1 = (s32[], f32[100]{0}) while(%p.2), condition=%condition, body=%step\n'
DONE = '%all-reduce-done = f32[100]{0} all-reduce-done(%all-reduce-start)\n'


def lines(*instructions):
  """The program with other instructions in place of the three."""
  before, rest = OVERLAPPED.split(f'  {START}')
  return before + ''.join(f'  {one}' for one in instructions) + rest.split(DONE)[1]


SENT = {'op': 'all-reduce', 'bytes': 400, 'loops': 1, 'groups': ((0, 1),)}


def test_a_collective_that_runs_during_the_loop():
  assert lines(START, LOOP, DONE) == OVERLAPPED
  assert collectives(OVERLAPPED) == [Collective(**SENT, needs_loop=False, during_loop=True, loops_beside=1)]


@pytest.mark.parametrize('order', [(START, DONE, LOOP), (LOOP, START, DONE)])
def test_a_collective_that_ends_before_the_loop_or_begins_after_it(order):
  assert collectives(lines(*order)) == [Collective(**SENT, needs_loop=False, during_loop=False, loops_beside=1)]


def test_a_collective_of_the_results_of_the_loop():
  result = '%y = f32[100]{0} get-tuple-element(%while.1), index=1\n'
  found = collectives(lines(LOOP, result, START.replace('(%x)', '(%y)'), DONE))
  assert found == [Collective(**SENT, needs_loop=True, during_loop=False)]


WRAPPED = """%wrapped (q: f32[100]) -> f32[50] {
  %q = f32[100]{0} parameter(0)
  ROOT %reduce-scatter = f32[50]{0} reduce-scatter(%q), replica_groups={{0,1}}, dimensions={0}, to_apply=%add
}

%step ("""


@pytest.mark.parametrize('needs_loop', [False, True])
@pytest.mark.parametrize(('op', 'attribute'), [('async', 'calls'), ('call', 'to_apply')])  # the latter for tpu7x
def test_a_collective_in_a_computation_that_runs_asynchronously(op, attribute, needs_loop):
  source = '%x' if not needs_loop else '%y'
  start = f'%start = ((f32[100]{{0}}), f32[50]{{0}}) {op}-start({source}), {attribute}=%wrapped\n'
  update = f'%update = ((f32[100]{{0}}), f32[50]{{0}}) {op}-update(%start)\n'
  done = f'%done = f32[50]{{0}} {op}-done(%update)\n'
  result = '%y = f32[100]{0} get-tuple-element(%while.1), index=1\n'
  order = (LOOP, result, start, update, done) if needs_loop else (start, update, LOOP, done)
  text = lines(*order).replace('%step (', WRAPPED, 1)
  (found,) = collectives(text)
  assert found == Collective(
    'reduce-scatter',
    400,
    1,
    needs_loop=needs_loop,
    during_loop=not needs_loop,
    loops_beside=int(not needs_loop),
    groups=((0, 1),),
  )


# A mean over two TPU slices, whose program is that of one of them: within the slice, by the data centre's network, back.

SLICES = """HloModule jit_f, num_partitions=8

%body (p: (f32[800])) -> (f32[800]) {
  ROOT %p = (f32[800]) parameter(0)
}

ENTRY %main (x: f32[800]) -> f32[800] {
  %x = f32[800] parameter(0)
  %t = (f32[800]) tuple(%x)
  %while = (f32[800]) while(%t), condition=%cond, body=%body
  %y = f32[800] get-tuple-element(%while), index=0
  %part = f32[100] reduce-scatter(%y), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true
  %after-all = token[] after-all()
  %send = (f32[100]{0:T(128)}, u32[], token[]) send(%part, %after-all), channel_id=2, is_host_transfer=true, DCN
  %recv = (f32[100]{0:T(128)}, u32[], token[]) recv(%after-all), channel_id=3, is_host_transfer=true, DCN
  %send-done = token[] send-done(%send), channel_id=2, is_host_transfer=true
  %recv-done = (f32[100]{0:T(128)}, token[]) recv-done(%recv), channel_id=3, is_host_transfer=true
  %z = f32[100] get-tuple-element(%recv-done), index=0
  ROOT %all = f32[800] all-gather(%z), channel_id=4, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true
}
""".replace(
  'DCN', 'frontend_attributes={_xla_host_transfer_rendezvous="psum.1",_xla_megascale_transfer_type="ALL_REDUCE"}'
)


def test_a_transfer_between_slices():
  """What is received needs what is sent, though no operand says so."""
  found = collectives(SLICES)
  assert [(c.op, c.bytes, c.needs_loop, c.loops_beside) for c in found] == [
    ('reduce-scatter', 3200, True, 0),
    ('send', 400, True, 0),
    ('all-gather', 400, True, 0),
  ]
  assert [c.is_inside(8) for c in found] == [True, False, True]


# The loops that can run at the same time as a collective.

PROGRAM = """
%body (p: (f32[4])) -> (f32[4]) {
  ROOT %p = (f32[4]) parameter(0)
}

ENTRY %main (x: f32[4], y: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %y = f32[4] parameter(1)
  %t1 = (f32[4]) tuple(%x)
  %first = (f32[4]) while(%t1), condition=%cond, body=%body
  %r1 = f32[4] get-tuple-element(%first), index=0
  %beside = f32[4] all-reduce(%y), replica_groups={{0,1}}, to_apply=%add
  %between = f32[4] all-gather(%r1), replica_groups={{0,1}}, dimensions={0}
  %t2 = (f32[4]) tuple(%between)
  %second = (f32[4]) while(%t2), condition=%cond, body=%body
  %r2 = f32[4] get-tuple-element(%second), index=0
  %overlapped = f32[4] all-to-all(%r1), replica_groups={{0,1}}, dimensions={0}
  ROOT %sum = f32[4] add(%r2, %overlapped)
}
"""


def test_loops_that_can_run_at_the_same_time():
  found = {c.op: (c.needs_loop, c.loops_beside) for c in collectives(PROGRAM)}
  # The all-reduce depends on nothing. The all-gather needs the first loop, and the second one needs it.
  assert found == {'all-reduce': (False, 2), 'all-gather': (True, 0), 'all-to-all': (True, 1)}
