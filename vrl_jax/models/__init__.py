"""The models, as flax modules."""

from vrl_jax.errors import require_extra

require_extra('train', __name__, 'chex', 'flax')
