"""Preparing data sets with TensorFlow Datasets (TFDS) and reading them without TensorFlow."""

from vrl_jax.errors import require_extra

require_extra('train', __name__, 'tqdm')
