"""Imports matplotlib even if `MPLBACKEND` names no backend: the figures here are drawn with Agg and need none."""

import contextlib
import os
import sys

from vrl_jax.errors import require_extra


def import_matplotlib() -> None:
  """Imports matplotlib; an invalid `MPLBACKEND` is ignored, a valid one has its usual effect on `pyplot`.

  >>> import_matplotlib()
  """
  require_extra('train', 'vrl_jax.report', 'matplotlib', 'ml_collections')
  if 'matplotlib' in sys.modules or (chosen := os.environ.pop('MPLBACKEND', None)) is None:
    return
  try:
    import matplotlib

    with contextlib.suppress(ValueError):
      matplotlib.rcParams['backend'] = chosen
  finally:
    os.environ['MPLBACKEND'] = chosen


import_matplotlib()
