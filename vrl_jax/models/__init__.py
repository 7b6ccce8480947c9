"""The models, as flax modules."""

from vrl_jax.extras import require_extra

require_extra('train', __name__, 'chex', 'flax')
