"""The lengths of the rounds."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrl_jax.engine.periods import check_stages, make_periods, post_local, spans, stages_from_losses, stagewise
from vrl_jax.errors import UserError

SMALL = [(*lengths, ()) for lengths in itertools.product(range(1, 16), range(1, 7), (None, 1, 2, 9))]
STAGED = [
  (*lengths, stages)
  for lengths in itertools.product((1, 7, 40), (1, 3), (None, 1, 5))
  for stages in (((0, 2),), ((4, 5),), ((4, 5), (5, 1), (6, 2), (20, 7)), ((3, 30), (10, 2)), ((100, 2),))
]


@pytest.mark.parametrize(
  ('steps', 'period', 'first', 'expected'),
  [
    (6, 1, None, [1, 1, 1, 1, 1, 1]),
    (9, 3, None, [3, 3, 3]),
    (10, 4, None, [4, 4, 2]),
    (10, 4, 1, [1, 4, 4, 1]),
    (10, 4, 6, [6, 4]),
    (3, 20, None, [3]),
    (3, 20, 1, [1, 2]),
    (3, 2, 20, [3]),
    (1, 1, None, [1]),
  ],
)
def test_lengths(steps, period, first, expected):
  assert [length for _, length in make_periods(steps, period, first).rounds()] == expected


def _expected(steps, period, first, stages):
  """(first step, length) of every round, step by step."""
  step = 0
  while step < steps:
    current = period
    for begin, length in stages:
      current = length if begin <= step else current
    length = min(first if first and step == 0 else current, steps - step)
    yield step, length
    step += length


def _check(steps, period, first, stages):
  periods = make_periods(steps, period, first, stages)
  rounds = list(periods.rounds())
  assert rounds == list(_expected(steps, period, first, stages))
  assert [step for start, length in rounds for step in range(start, start + length)] == list(range(steps))
  ends = [start + length for start, length in rounds]
  for step in range(steps + 1):
    assert periods.rounds_before(step) == sum(end <= step for end in ends), (periods, step)
  for done, (start, _) in enumerate(rounds):
    assert list(periods.rounds(start)) == rounds[done:]  # a run resumes at any boundary
  assert list(periods.rounds(steps)) == []


def test_rounds_without_stages():
  for case in SMALL:
    _check(*case)


@pytest.mark.parametrize(('steps', 'period', 'first', 'stages'), STAGED)
def test_rounds_with_stages(steps, period, first, stages):
  _check(steps, period, first, stages)


@given(
  steps=st.integers(1, 60),
  period=st.integers(1, 9),
  first=st.none() | st.integers(1, 12),
  stages=st.dictionaries(st.integers(0, 50), st.integers(1, 9), max_size=4),
)
def test_rounds_with_any_stages(steps, period, first, stages):
  _check(steps, period, first, sorted(stages.items()))


def test_only_the_last_round_is_partial():
  for steps, period, first, _ in SMALL:
    rounds = list(make_periods(steps, period, first).rounds())
    assert all(length == period for _, length in rounds[1:-1])
    assert rounds[0][1] == min(first or period, steps)


def test_spans_are_complete_rounds():
  for start, end, period in spans(3, 5, ((4, 5), (5, 1), (6, 2), (20, 7))):
    assert end is None or (end - start) % period == 0


def test_stages_are_optional():
  assert make_periods(10, 4, 1) == (10, 4, 1, (), None)


def test_post_local():
  lengths = [length for _, length in make_periods(20, 1, stages=post_local(6, 5)).rounds()]
  assert lengths == [1] * 6 + [5, 5, 4]


def test_stagewise_doubles():
  stages = stagewise(2, (8, 16))
  assert [length for _, length in make_periods(32, 2, stages=stages).rounds()] == [2] * 4 + [4] * 2 + [8] * 2


def test_stages_from_losses_depend_on_the_log_only():
  logged = [(0, 4.0), (10, 1.0), (20, 0.25)]
  assert stages_from_losses(3, logged, 100) == ((10, 6), (20, 12))
  assert stages_from_losses(3, logged, 10) == ((10, 6), (20, 10))
  assert stages_from_losses(3, logged[:2], 100) == ((10, 6),)
  assert stages_from_losses(3, [(0, 4.0), (10, 1.01), (20, 0.9), (30, 0.3), (40, 3.9)], 100) == ((20, 6), (40, 3))
  assert stages_from_losses(3, [(0, 4.0), (10, float('nan')), (20, 0.0), (30, 1.0)], 100) == ((30, 6),)
  assert stages_from_losses(3, [(0, 1.0), (10, 100.0)], 100) == stages_from_losses(3, [], 100) == ()


def test_stages_follow_one_loss_at_a_time():
  losses = [4.0, 1.01, 0.9, float('nan'), 0.3, 0.0, 3.9, 1.0, 0.001]
  logged = list(zip(range(0, 900, 100), losses))
  incremental = make_periods(1000, 3, max_period=20)
  for step, loss in logged:
    incremental = incremental.after_loss(step, loss, losses[0])
  assert incremental.stages == stages_from_losses(3, logged, 20) != ()
  fixed = make_periods(1000, 3)
  assert fixed.after_loss(100, 0.1, 4.0) is fixed


def test_rounds_between_two_rounds():
  periods = make_periods(100, 3, first_period=5, stages=((4, 5), (5, 1), (6, 2), (20, 7), (21, 4)))
  starts = [start for start, _ in periods.rounds()]
  for start in starts:
    for step in range(start, 101):
      assert periods.rounds_between(start, step) == periods.rounds_before(step) - periods.rounds_before(start)


@pytest.mark.parametrize('name', ['steps', 'period', 'first_period'])
@pytest.mark.parametrize('value', [0, -1, 2.0, True, '5'])
def test_bad_lengths(name, value):
  arguments = {'steps': 10, 'period': 3, 'first_period': 1} | {name: value}
  with pytest.raises(UserError, match=f'{name}={value!r}, must be an integer of at least 1'):
    make_periods(**arguments)


@pytest.mark.parametrize('stages', [((5, 0),), ((5,),), ((-1, 2),), ((5, 2), (5, 3)), ((5, 2), (4, 3)), ((5, 2.5),)])
def test_bad_stages(stages):
  with pytest.raises(UserError, match='period_stages=.*pairs of integers with increasing steps'):
    check_stages(stages)
