"""Strict numerics and eight virtual devices for every test."""

from vrl_jax import devices

devices.prepare(8)

import jax  # noqa: E402

jax.devices()  # starts the backend, so that no test's config gets fewer

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')
