"""Periods that change over time: stages, post-local, growth by the loss."""

import itertools

import pytest

from vrl_jax.errors import UserError
from vrl_jax.periods import check_stages, grown_by_loss, make_periods, post_local, spans, stagewise

CASES = [
  (steps, period, first, stages)
  for steps, period, first in itertools.product((1, 7, 40), (1, 3), (None, 1, 5))
  for stages in ((), ((0, 2),), ((4, 5),), ((4, 5), (5, 1), (6, 2), (20, 7)), ((3, 30), (10, 2)), ((100, 2),))
]


@pytest.mark.parametrize(('steps', 'period', 'first', 'stages'), CASES)
def test_rounds_cover_the_run_and_are_counted(steps, period, first, stages):
  periods = make_periods(steps, period, first, stages)
  rounds = list(periods.rounds())
  assert [start for start, _ in rounds] == [0, *itertools.accumulate(length for _, length in rounds)][:-1]
  assert sum(length for _, length in rounds) == steps
  for start, length in rounds[1:]:
    planned = ([period] + [k for step, k in stages if step <= start])[-1]
    assert length == planned or start + length == steps
  for step in range(steps + 1):
    assert periods.rounds_before(step) == sum(start + length <= step for start, length in rounds)
  for start, _ in rounds:
    assert list(periods.rounds(start)) == [r for r in rounds if r[0] >= start]


def test_spans_are_whole_rounds():
  for start, end, period in spans(3, 5, ((4, 5), (5, 1), (6, 2), (20, 7))):
    assert end is None or (end - start) % period == 0


def test_no_stages_are_the_old_periods():
  assert make_periods(10, 4, 1) == (10, 4, 1, (), None)


def test_post_local():
  lengths = [length for _, length in make_periods(20, 1, stages=post_local(6, 5)).rounds()]
  assert lengths == [1] * 6 + [5, 5, 4]


def test_stagewise_doubles():
  stages = stagewise(2, (8, 16))
  assert [length for _, length in make_periods(32, 2, stages=stages).rounds()] == [2] * 4 + [4] * 2 + [8] * 2


def test_growth_by_the_loss_depends_on_the_log_alone():
  logged = [(0, 4.0), (10, 1.0), (20, 0.25)]
  assert grown_by_loss(3, logged, 100) == ((10, 6), (20, 12))
  assert grown_by_loss(3, logged, 10) == ((10, 6), (20, 10))
  assert grown_by_loss(3, logged[:2], 100) == ((10, 6),)
  assert grown_by_loss(3, [(0, 4.0), (10, 1.01), (20, 0.9), (30, 0.3), (40, 3.9)], 100) == ((20, 6), (40, 3))
  assert grown_by_loss(3, [(0, 4.0), (10, float('nan')), (20, 0.0), (30, 1.0)], 100) == ((30, 6),)
  assert grown_by_loss(3, [(0, 1.0), (10, 100.0)], 100) == grown_by_loss(3, [], 100) == ()


@pytest.mark.parametrize('stages', [((5, 0),), ((5,),), ((-1, 2),), ((5, 2), (5, 3)), ((5, 2), (4, 3)), ((5, 2.5),)])
def test_bad_stages(stages):
  with pytest.raises(UserError, match='period_stages=.*pairs of whole numbers'):
    check_stages(stages)
