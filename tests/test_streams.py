"""The standard streams of a command."""

import io
import sys

from vrl_jax.streams import prepare_streams


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
