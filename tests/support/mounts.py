"""Small file systems, which are soon full."""

import os
import shutil
import subprocess

import pytest


@pytest.fixture
def mounted(tmp_path):
  """Mounts small file systems: `mounted('size=1m')` returns the folder of a new one."""
  folders = []

  def mount(options):
    folder = tmp_path / f'disk{len(folders)}'
    folder.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', options, 'tmpfs', str(folder)]
    if os.geteuid() or shutil.which('mount') is None or subprocess.run(command, capture_output=True).returncode:
      pytest.skip('only root can mount a small tmpfs here')
    folders.append(folder)
    return folder

  yield mount
  for folder in folders:
    subprocess.run(['umount', str(folder)], check=True)
