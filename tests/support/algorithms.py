"""The parametrisation of tests that take seconds for each algorithm."""

import pytest

import vrl_jax

# Each is close to an algorithm that is not listed, in what it keeps and when it communicates.
_RELATIVES = ('local_sgd', 'easgd', 'vrl_adaptive', 'slowmo', 'diloco', 'extra')

every_kind = pytest.mark.parametrize(
  'name',
  [pytest.param(name, marks=pytest.mark.slow) if name in _RELATIVES else name for name in vrl_jax.ALGORITHMS],
)
"""Algorithms of every kind and new ones; the close relatives of others are slow."""
