"""Strict numerics and eight virtual devices for every test."""

import gc
import signal

import pytest

from vrl_jax.engine import devices

collect_ignore_glob = ['support/stories/*']  # programs of tests/project/test_user_stories.py, which would run

# A shell's background job ignores Ctrl-C, and so would what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

devices.prepare_devices(8)

import jax  # noqa: E402

jax.devices()  # starts the backend, so that no test's config gets fewer

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')


@pytest.fixture(scope='module', autouse=True)
def forget_compiled_programs():
  """Every compiled program holds memory maps, and a process may have only so many: XLA crashes when they run out."""
  yield
  jax.clear_caches()
  gc.collect()


def pytest_make_parametrize_id(val, argname):
  """Names bytes by their argument: the id must be the same in every process of pytest-xdist, and gzip has the time in it."""
  return argname if isinstance(val, bytes) else None
