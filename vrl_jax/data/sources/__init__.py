"""Readers of the data sets, one file each, and of their file formats."""

from vrl_jax.errors import require_extra

require_extra('train', __name__, 'tqdm')
