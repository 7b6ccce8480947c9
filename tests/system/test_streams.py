"""The standard streams of a command."""

import io
import os
import sys

import pytest

from vrl_jax.errors import StorageError
from vrl_jax.system.streams import prepare_streams


def test_characters_outside_the_encoding_are_escaped(monkeypatch):
  content = io.BytesIO()
  monkeypatch.setattr(sys, 'stdout', io.TextIOWrapper(content, 'ascii'))
  prepare_streams()
  print('1.5 ± 0.7')
  assert content.getvalue() == rb'1.5 \xb1 0.7' + b'\n'


def test_a_closed_stream_discards(monkeypatch):
  monkeypatch.setattr(sys, 'stdout', None)
  prepare_streams()
  print('nowhere')
  assert sys.stdout is not None and not sys.stdout.isatty()


def a_pipe_without_a_reader():
  reading, writing = os.pipe()
  os.close(reading)
  return writing


@pytest.mark.parametrize('name', ['stdout', 'stderr'])
def test_the_rest_is_discarded_if_the_reader_has_gone(name, monkeypatch):
  monkeypatch.setattr(sys, name, open(a_pipe_without_a_reader(), 'w'))
  prepare_streams()
  for _ in range(3):
    print('a line', file=getattr(sys, name))
  getattr(sys, name).close()


def test_a_full_disk_is_an_error_of_stdout_once(monkeypatch):
  monkeypatch.setattr(sys, 'stdout', open('/dev/full', 'w'))
  monkeypatch.setattr(sys, 'stderr', open('/dev/full', 'w'))
  prepare_streams()
  with pytest.raises(StorageError, match=r'stdout cannot be written \(No space left on device\)'):
    print('a line')
  print('a line')
  sys.stdout.close()
  print('the error', file=sys.stderr)
  sys.stderr.close()
