"""Optional dependencies: what needs one says so before it imports it."""

import importlib.util

from vrl_jax.errors import MissingExtra


def require_extra(extra: str, user: str, *modules: str) -> None:
  """Raises MissingExtra if a module is not installed.

  A package of VRL-JAX whose modules import optional dependencies calls it in its `__init__`. As the error names that
  package, `python -m` prints one line, too.

  Args:
    extra: the extra in pyproject.toml that installs the modules.
    user: what needs them, such as `__name__`.
    *modules: top-level modules; they are not imported.

  >>> require_extra('train', 'vrl_jax.training', 'flax', 'ml_collections')
  >>> require_extra('train', 'vrl_jax.training', 'flax', 'wax', 'max')
  Traceback (most recent call last):
    ...
  vrl_jax.errors.MissingExtra: vrl_jax.training needs wax, max: pip install 'vrl-jax[train]'
  """
  missing = [module for module in modules if importlib.util.find_spec(module) is None]
  if missing:
    raise MissingExtra(f"{user} needs {', '.join(missing)}: pip install 'vrl-jax[{extra}]'", name=user)
