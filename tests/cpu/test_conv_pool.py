"""Details of the convolution with max-pool; the models compare whole convolutions in tests/models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrl_jax.cpu import conv_pool


def test_the_first_of_equal_values_gets_the_gradient():
  x = jnp.asarray([[1.0, 2.0, -5.0], [3.0, 2.0, -5.0], [3.0, 0.0, -6.0], [0.0, 2.0, -7.0]])
  grads = jax.grad(lambda x: conv_pool._pool_relu(x, jnp.zeros((1,))).sum())(x)
  np.testing.assert_array_equal(grads, [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])


def test_a_kernel_that_does_not_fit_the_blocks_raises():
  with pytest.raises(ValueError, match='4x4 kernel'):
    conv_pool.conv_pool_relu(jnp.zeros((2, 2, 1, 4, 4, 1)), jnp.zeros((4, 4, 1, 3)), jnp.zeros((3,)))
