"""The lengths of the rounds."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrl_jax.errors import UserError
from vrl_jax.periods import auto_period, make_periods

SMALL = list(itertools.product(range(1, 16), range(1, 7), (None, 1, 2, 9)))


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


def test_rounds_cover_every_step_once_and_only_the_last_is_partial():
  for steps, period, first in SMALL:
    rounds = list(make_periods(steps, period, first).rounds())
    assert [step for start, length in rounds for step in range(start, start + length)] == list(range(steps))
    assert all(length == period for _, length in rounds[1:-1])
    assert rounds[0][1] == min(first or period, steps)


def test_a_run_resumes_at_any_boundary():
  for steps, period, first in SMALL:
    periods = make_periods(steps, period, first)
    rounds = list(periods.rounds())
    for done, (start, _) in enumerate(rounds):
      assert list(periods.rounds(start)) == rounds[done:]
    assert list(periods.rounds(steps)) == []


def test_rounds_before_counts_the_rounds_that_have_ended():
  for steps, period, first in SMALL:
    periods = make_periods(steps, period, first)
    ends = [start + length for start, length in periods.rounds()]
    for step in range(steps + 1):
      assert periods.rounds_before(step) == sum(end <= step for end in ends), (periods, step)


@given(
  steps=st.integers(1, 60),
  period=st.integers(1, 9),
  first=st.none() | st.integers(1, 12),
  stages=st.dictionaries(st.integers(0, 50), st.integers(1, 9), max_size=4),
)
def test_stages(steps, period, first, stages):
  stages = sorted(stages.items())
  periods = make_periods(steps, period, first, stages)
  rounds = list(periods.rounds())
  step, expected = 0, []
  while step < steps:
    current = period
    for begin, length in stages:
      current = length if begin <= step else current
    length = min(first if first and step == 0 else current, steps - step)
    expected.append((step, length))
    step += length
  assert rounds == expected
  ends = [start + length for start, length in rounds]
  assert [periods.rounds_before(step) for step in range(steps + 1)] == [
    sum(end <= step for end in ends) for step in range(steps + 1)
  ]


@pytest.mark.parametrize('name', ['steps', 'period', 'first_period'])
@pytest.mark.parametrize('value', [0, -1, 2.0, True, '5'])
def test_bad_lengths(name, value):
  arguments = {'steps': 10, 'period': 3, 'first_period': 1} | {name: value}
  with pytest.raises(UserError, match=f'{name}={value!r}, must be a whole number of at least 1'):
    make_periods(**arguments)


@pytest.mark.parametrize(
  ('algorithm', 'identical', 'expected'),
  [
    # T = 117,187, N = 8: 342.3 / 22.63 = 15.1, and 18.50 / 4.757 = 3.9.
    ('s_sgd', True, 1),
    ('s_sgd', False, 1),
    ('vrl_sgd', True, 15),
    ('vrl_sgd', False, 15),
    ('local_sgd', True, 15),
    ('local_sgd', False, 3),
  ],
)
def test_auto(algorithm, identical, expected):
  assert auto_period(algorithm, steps=117_187, workers=8, identical_data=identical) == expected


def test_auto_is_at_least_1_and_exact_at_powers():
  assert auto_period('vrl_sgd', steps=10, workers=8, identical_data=False) == 1
  for k in range(1, 40):  # T = k² N³
    assert auto_period('vrl_sgd', steps=k**2 * 8**3, workers=8, identical_data=False) == k
    if k > 1:
      assert auto_period('vrl_sgd', steps=k**2 * 8**3 - 1, workers=8, identical_data=False) == k - 1
  for k in range(1, 15):  # T = k⁴ N³
    assert auto_period('local_sgd', steps=k**4 * 8**3, workers=8, identical_data=False) == k
  assert auto_period('vrl_sgd', steps=10_000, workers=1, identical_data=False) == math.isqrt(10_000)


def test_auto_refuses_the_others():
  with pytest.raises(UserError, match="algorithm='easgd' give a number"):
    auto_period('easgd', steps=100, workers=8, identical_data=False)
