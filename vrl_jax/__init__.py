"""Variance Reduced Local SGD and its family as optax-style transforms."""

from vrl_jax import devices as devices

devices.guard_against_deadlock()

from vrl_jax.algorithms import *  # noqa: E402, F403
