"""The peak of what is sent, against a link that is watched in small parts of a step."""

import itertools
import math

import numpy as np
import pytest

from vrl_jax.accounting.peak import peak_bytes

PARTS = 60  # of a step


def watched(per_round, period, window, fragments, delay):
  """The bytes on the link in every part of a step of three rounds, and the largest sum over a window."""
  link = np.zeros((4 * period + delay) * PARTS)
  starts = [r * period + math.ceil((f + 1) * period / fragments) for r in range(3) for f in range(fragments)]
  for start, following in itertools.pairwise([*starts, starts[-1] + math.ceil(period / fragments)]):
    takes = min(delay, following - start) * PARTS
    link[start * PARTS : start * PARTS + max(takes, 1)] += per_round / fragments / max(takes, 1)
  sums = np.convolve(link, np.ones(window * PARTS), 'valid')
  return sums[period * PARTS : 2 * period * PARTS].max()


@pytest.mark.parametrize('fragments', [1, 3, 4])
@pytest.mark.parametrize('delay', [0, 1, 3, 5, 20])
@pytest.mark.parametrize('window', [1, 2, 7])
def test_peak_of_a_watched_link(fragments, delay, window):
  peak = peak_bytes(12_000, 20, window, fragments=fragments, delay=delay)
  assert peak == pytest.approx(watched(12_000, 20, window, fragments, delay), rel=1e-6)
  assert peak >= 12_000 * window / 20 * (1 - 1e-9)
