"""The package passes the type checker."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_mypy_finds_nothing():
  done = subprocess.run([sys.executable, '-m', 'mypy'], cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
