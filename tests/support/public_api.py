"""The public names of the package."""

import vrl_jax

PUBLIC = sorted(vrl_jax.__all__)
