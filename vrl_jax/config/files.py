"""Config files by path or by name: `lenet_mnist`, `figures/quadratic`, …

In a checkout the named ones are the files of `configs/`; a wheel carries them inside the package.
"""

import importlib.util
import pathlib
from collections.abc import Iterator

import ml_collections

import vrl_jax
from vrl_jax.errors import UserError


def _directories() -> Iterator[pathlib.Path]:
  package = pathlib.Path(vrl_jax.__file__).parent
  yield from (path for path in (package / 'configs', package.parent / 'configs') if path.is_dir())


def config_names() -> list[str]:
  """The names that `load_config` and `--config` accept.

  >>> 'quadratic' in config_names(), 'figures/quadratic' in config_names()
  (True, True)
  """
  for directory in _directories():
    files = [path for path in directory.rglob('*.py') if 'def get_config(' in path.read_text()]
    return sorted(path.relative_to(directory).with_suffix('').as_posix() for path in files)
  return []


def config_path(config: str) -> pathlib.Path:
  """The file of a config.

  Args:
    config: a path or a name. `configs/quadratic.py` is accepted as a name where there is no such file.

  Returns:
    The path.

  Raises:
    UserError: there is neither a file nor a config of that name.

  >>> config_path('figures/quadratic').parts[-3:]
  ('configs', 'figures', 'quadratic.py')
  """
  path = pathlib.Path(config)
  if path.is_file():
    return path
  name = path.with_suffix('').as_posix().removeprefix('configs/')
  names = config_names()
  if name not in names:
    raise UserError(f'config={config!r}: no such file or config; the configs are {", ".join(names)}')
  return next(_directories()) / f'{name}.py'


def load_config(config: str) -> ml_collections.ConfigDict:
  """Calls the `get_config()` of a config file.

  Args:
    config: a name or a path, optionally followed by `:argument`, which is passed to `get_config`.

  Returns:
    The config, to change and to pass to `vrl_jax.train_and_evaluate`.

  Raises:
    UserError: there is no such file. Whatever the file itself raises is not caught.

  >>> load_config('quadratic').period
  20
  >>> load_config('figures/lenet_mnist:half').period
  10
  """
  file, *argument = config.split(':', 1)
  path = config_path(file)
  spec = importlib.util.spec_from_file_location(f'{path.stem}_config', path)
  if spec is None or spec.loader is None:
    raise UserError(f'config={config!r}, must be a Python file')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  if not hasattr(module, 'get_config'):
    raise UserError(f'{path}: defines no get_config()')
  return module.get_config(*argument)
