"""The cache directory and atomic writes."""

import os
import signal
import subprocess
import sys

import pytest

from vrl_jax.system import storage
from vrl_jax.system.storage import atomic_path, cache_dir, remove_abandoned, replace_text


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


def test_a_temporary_file_follows_no_link(tmp_path, monkeypatch):
  """Its name cannot be predicted; should it be guessed, the file behind a link planted there stays."""
  (tmp_path / 'mine').write_text('mine')
  monkeypatch.setattr(storage.secrets, 'token_hex', lambda size: '0' * 2 * size)
  (tmp_path / f'.file.{"0" * 16}.tmp').symlink_to(tmp_path / 'mine')
  with pytest.raises(FileExistsError):
    replace_text(tmp_path / 'file', 'text')
  assert (tmp_path / 'mine').read_text() == 'mine'


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


WRITER = """
import os, pathlib, signal, sys
from vrl_jax.system import storage
from vrl_jax.system.storage import atomic_path
with atomic_path(pathlib.Path(sys.argv[1])) as temporary:
  temporary.write_text('half')
  print(temporary, flush=True)
  signal.pause()
"""


def test_only_temporary_files_whose_writer_was_killed_are_removed(tmp_path):
  kept = ('.lock', '.mine.tmp', 'a.0123456789abcdef.tmp', '.a.0123456789abcdeg.tmp')
  for name in kept:
    (tmp_path / name).touch()
  (tmp_path / '.folder.0123456789abcdef.tmp').mkdir()
  (tmp_path / '.link.0123456789abcdef.tmp').symlink_to(tmp_path / '.lock')
  before = set(os.listdir(tmp_path))
  command = [sys.executable, '-c', WRITER, str(tmp_path / 'file')]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
    temporary = writer.stdout.readline().strip()
    remove_abandoned(tmp_path)
    assert os.path.exists(temporary)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert os.path.exists(temporary)
    remove_abandoned(tmp_path)
  assert set(os.listdir(tmp_path)) == before


def test_a_folder_that_does_not_exist_has_nothing_abandoned(tmp_path):
  remove_abandoned(tmp_path / 'missing')
