"""Command-line tools: `python -m vrl_jax.tools.<name>`."""

from vrl_jax.errors import require_extra

require_extra('train', __name__, 'absl', 'chex', 'flax', 'matplotlib', 'ml_collections', 'orbax', 'tqdm')
