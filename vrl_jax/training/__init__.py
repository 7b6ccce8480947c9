"""Runs of a config: training loop, checkpoints, run directory, sweeps."""

from vrl_jax.errors import require_extra

require_extra('train', __name__, 'chex', 'flax', 'matplotlib', 'ml_collections', 'orbax', 'tqdm')
