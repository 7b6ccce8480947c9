"""Fixtures of the algorithms' tests."""

import jax
import pytest


@pytest.fixture
def x64():
  """Runs a test in float64."""
  with jax.enable_x64(True):
    yield
