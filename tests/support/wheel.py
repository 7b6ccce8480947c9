"""The wheel, and an environment in which nothing but it and this environment's dependencies are installed."""

import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).parents[2]


def build(folder):
  """Builds the wheel of the checkout."""
  command = [sys.executable, '-m', 'build', '--wheel', '--no-isolation', '--outdir', folder, ROOT]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  (path,) = folder.glob('*.whl')
  return path


class Installed:
  """An environment with the wheel, without access to the checkout."""

  def __init__(self, wheel, folder):
    environment = folder / 'venv'
    venv.create(environment, with_pip=True)
    self.bin = environment / 'bin'
    command = [self.bin / 'python', '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-index', wheel]
    subprocess.run(command, check=True)
    # The dependencies are those of this environment, without vrl_jax: a path does not include an editable install.
    self.site = environment / 'lib' / f'python{sys.version_info[0]}.{sys.version_info[1]}' / 'site-packages'
    paths = [path for path in sys.path if pathlib.Path(path).name in ('site-packages', 'dist-packages')]
    (self.site / 'dependencies.pth').write_text('\n'.join(paths) + '\n')

  def run(self, folder, program, *args):
    """Runs a program of the environment in a folder."""
    env = {name: os.environ[name] for name in ('HOME', 'PATH') if name in os.environ}
    return subprocess.run([self.bin / program, *args], cwd=folder, env=env, capture_output=True, text=True)
