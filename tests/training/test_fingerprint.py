"""The checksum of the sources covers the whole package, wherever its modules move."""

import pathlib
import shutil

import pytest

import vrl_jax
from vrl_jax.config.files import config_path
from vrl_jax.training import fingerprint

PACKAGE = pathlib.Path(vrl_jax.__file__).parent
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / '__init__.py').exists())


@pytest.fixture(scope='module')
def copied_package(tmp_path_factory):
  copy = tmp_path_factory.mktemp('copy') / 'vrl_jax'
  shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns('__pycache__'))
  return copy


@pytest.mark.parametrize('place', ['.', *ROOMS, 'algorithms/core', 'data/sources', 'data/tfds/builders'])
def test_a_change_anywhere_changes_the_version(place, copied_package, monkeypatch):
  monkeypatch.setattr(fingerprint, '_PACKAGE', copied_package)
  version = fingerprint._version.__wrapped__
  before = version()
  assert version() == before
  path = sorted((copied_package / place).glob('*.py'))[-1]
  text = path.read_text()
  path.write_text(text + '# changed\n')
  assert version() != before
  path.write_text(text)
  path.rename(path.with_name('renamed.py'))
  assert version() != before
  path.with_name('renamed.py').rename(path)
  assert version() == before


def test_the_version_covers_this_package():
  assert fingerprint._PACKAGE.samefile(PACKAGE)
  assert {'algorithms', 'engine', 'training', 'config'} <= set(ROOMS)
  assert config_path('quadratic').samefile(PACKAGE.parent / 'configs' / 'quadratic.py')
