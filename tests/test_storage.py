"""The cache directory and atomic writes."""

import os

import pytest

from vrl_jax.storage import atomic_path, cache_dir, replace_text


def test_the_cache_directory_follows_the_environment(monkeypatch, tmp_path):
  monkeypatch.setenv('VRL_JAX_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'xdg'))
  assert cache_dir() == tmp_path / 'cache'
  monkeypatch.delenv('VRL_JAX_CACHE')
  assert cache_dir() == tmp_path / 'xdg' / 'vrl_jax'
  monkeypatch.delenv('XDG_CACHE_HOME')
  monkeypatch.setenv('HOME', str(tmp_path / 'home'))
  assert cache_dir() == tmp_path / 'home' / '.cache' / 'vrl_jax'


@pytest.mark.parametrize('exception', [OSError, KeyboardInterrupt])
def test_a_failed_write_keeps_the_old_content(exception, tmp_path):
  path = tmp_path / 'file'
  replace_text(path, 'old')
  with pytest.raises(exception), atomic_path(path) as temporary:
    temporary.write_text('new, but incomplete')
    raise exception
  assert path.read_text() == 'old'
  assert os.listdir(tmp_path) == ['file']


def test_two_writers_do_not_share_a_temporary_file(tmp_path):
  path = tmp_path / 'file'
  with atomic_path(path) as first, atomic_path(path) as second:
    first.write_text('first')
    second.write_text('second')
  assert path.read_text() == 'first'  # the last one that ended
  assert os.listdir(tmp_path) == ['file']


def test_the_permissions_follow_the_umask(tmp_path):
  before = os.umask(0o027)
  try:
    replace_text(tmp_path / 'file', 'text')
  finally:
    os.umask(before)
  assert (tmp_path / 'file').stat().st_mode & 0o777 == 0o640


def test_a_folder_that_does_not_exist_is_an_os_error(tmp_path):
  with pytest.raises(FileNotFoundError):
    replace_text(tmp_path / 'missing' / 'file', 'text')
