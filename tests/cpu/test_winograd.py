"""Minimal filtering; the models compare whole convolutions in tests/models."""

import numpy as np

from vrl_jax.cpu import winograd


def test_minimal_filtering_is_accurate():
  rng = np.random.default_rng(0)
  to_outputs, of_kernel, of_inputs = winograd.minimal_filter(tile=4, taps=5)
  inputs, kernel = rng.normal(size=(8, 50, 1000)), rng.normal(size=(5, 50))
  exact = np.stack([np.einsum('scn,sc->n', inputs[i : i + 5], kernel) for i in range(4)])

  def filtered(dtype):
    at, g, bt, x, k = (a.astype(dtype) for a in (to_outputs, of_kernel, of_inputs, inputs, kernel))
    return at @ np.einsum('pc,pcn->pn', g @ k, np.einsum('ps,scn->pcn', bt, x))

  worst = lambda found: np.abs(found - exact).max() / exact.std()
  assert worst(filtered(np.float64)) < 1e-13
  assert worst(filtered(np.float32)) < 6e-6
