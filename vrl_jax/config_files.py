"""The experiments that come with the package, by name: `lenet_mnist`, `figures/quadratic`, …

In a checkout they are the files of `configs/`; a wheel carries them inside the package.
"""

import importlib.util
import pathlib
import sys
import types

import ml_collections

from vrl_jax.errors import UserError

_PACKAGE = pathlib.Path(__file__).parent
FOLDER = next((path for path in (_PACKAGE / 'configs', _PACKAGE.parent / 'configs') if path.is_dir()), None)


def config_names() -> list[str]:
  """The names that `load_config` and `--config` know.

  >>> 'quadratic' in config_names(), 'figures/quadratic' in config_names()
  (True, True)
  """
  files = [path for path in FOLDER.rglob('*.py') if 'def get_config(' in path.read_text()] if FOLDER else ()
  return sorted(path.relative_to(FOLDER).with_suffix('').as_posix() for path in files)


def config_path(config: str) -> pathlib.Path:
  """The file of a config.

  Args:
    config: a path, or a name; `configs/quadratic.py` is understood where there is no such folder, too.

  Returns:
    The path.

  Raises:
    UserError: there is neither.

  >>> config_path('figures/quadratic').parts[-3:]
  ('configs', 'figures', 'quadratic.py')
  """
  path = pathlib.Path(config)
  name = path.with_suffix('').as_posix().removeprefix('configs/')
  if not path.is_file():
    if name not in config_names():
      raise UserError(f'config={config!r}: no such file, and none of the configs {", ".join(config_names())}')
    path = FOLDER / f'{name}.py'
  make_importable()
  return path


def load_config(config: str) -> ml_collections.ConfigDict:
  """What a config file's `get_config()` returns, to change and to give to `vrl_jax.train.train_and_evaluate`.

  Args:
    config: a name or a path; what follows a colon is `get_config`'s argument, as on the command line.

  >>> load_config('quadratic').period
  20
  >>> load_config('figures/lenet_mnist:half').period
  10
  """
  file, *argument = config.split(':', 1)
  path = config_path(file)
  spec = importlib.util.spec_from_file_location(f'{path.stem}_config', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.get_config(*argument)


def make_importable() -> None:
  """Lets config files say `from configs import quadratic`, wherever they and the package are.

  >>> make_importable()
  >>> from configs import quadratic
  >>> quadratic.get_config().task
  'quadratic'
  """
  if FOLDER and 'configs' not in sys.modules and importlib.util.find_spec('configs') is None:
    sys.modules['configs'] = module = types.ModuleType('configs')
    module.__path__ = [str(FOLDER)]
