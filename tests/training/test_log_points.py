"""The steps at which a run logs, and the number of rounds per dispatch."""

import pytest

from vrl_jax.engine.periods import make_periods
from vrl_jax.training.log_points import Pacer, segments

CASES = [
  (steps, period, first, interval)
  for steps in (1, 7, 22, 60)
  for period in (1, 4, 25)
  for first in (None, 1)
  for interval in (1, 3, 7.5, 9, 100)
]


def _flat(segment):
  rounds = [(first + i * length, length) for first, length, count in segment.plain for i in range(count)]
  return [*rounds, segment.logged]


@pytest.mark.parametrize(('steps', 'period', 'first', 'interval'), CASES)
def test_segments_are_the_rounds_in_order(steps, period, first, interval):
  periods = make_periods(steps, period, first)
  flat = [round_ for segment in segments(periods, interval) for round_ in _flat(segment)]
  assert flat == list(periods.rounds())


@pytest.mark.parametrize(('steps', 'period', 'first', 'interval'), CASES)
def test_logs_at_the_first_boundary_at_or_after_each_due_step(steps, period, first, interval):
  periods = make_periods(steps, period, first)
  boundaries = [start + length for start, length in periods.rounds()]
  due, expected = interval, {steps}
  while due <= steps:
    expected.add(min(boundary for boundary in boundaries if boundary >= due))
    due += interval
  assert [sum(segment.logged) for segment in segments(periods, interval)] == sorted(expected)


@pytest.mark.parametrize(('steps', 'period', 'first', 'interval'), CASES)
def test_a_resumed_run_logs_at_the_same_steps(steps, period, first, interval):
  periods = make_periods(steps, period, first)
  logged = [segment.logged for segment in segments(periods, interval)]
  for start, _ in periods.rounds():
    rest = list(segments(periods, interval, start))
    assert [segment.logged for segment in rest] == [place for place in logged if place[0] >= start]
    assert [r for segment in rest for r in _flat(segment)] == list(periods.rounds(start))


def test_rounds_of_equal_length_are_one_group():
  first, second = segments(make_periods(30, 4, 1), interval=20)
  assert first.plain == [(0, 1, 1), (1, 4, 4)]
  assert first.logged == (17, 4)
  assert second.plain == [(21, 4, 2)]
  assert second.logged == (29, 1)


def test_fractional_intervals_do_not_drift():
  # A tenth of an epoch of 35 steps: due at 3.5, 7, 10.5, ...; ten log points per epoch to the end.
  periods = make_periods(3500, 1)
  logged = [sum(segment.logged) for segment in segments(periods, 0.1 * 35)]
  assert len(logged) == 1000
  assert logged[1::2] == list(range(7, 3501, 7))


def test_pacer():
  pacer = Pacer(capacity=100, seconds=0.5)
  assert pacer.rounds(1000) == 1  # nothing has been measured
  pacer.note(rounds=1, seconds=0.01)
  assert pacer.rounds(1000) == 50
  assert pacer.rounds(7) == 7
  pacer.note(rounds=50, seconds=0.05)
  assert pacer.rounds(1000) == 100
  pacer.note(rounds=1, seconds=3.0)
  assert pacer.rounds(1000) == 1
  pacer.note(rounds=1, seconds=0.0)
  assert pacer.rounds(1000) == 100
