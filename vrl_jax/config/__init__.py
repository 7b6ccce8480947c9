"""Config fields, validation and config files."""

from vrl_jax.errors import require_extra

require_extra('train', __name__, 'ml_collections')
