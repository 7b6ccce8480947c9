"""`XLA_FLAGS` with only the flags that this jaxlib knows: at any other XLA aborts the process."""

import functools
import mmap
import os
import pathlib

import jaxlib


def add_xla_flags(*flags: str) -> None:
  """Adds flags to `XLA_FLAGS`, unless the user has set them or this jaxlib does not know them.

  >>> from unittest import mock
  >>> with mock.patch.dict(os.environ, XLA_FLAGS='--xla_gpu_autotune_level=2'):
  ...   add_xla_flags('--xla_gpu_autotune_level=4', '--xla_cpu_use_abacus=true', '--xla_dump_to=dumps')
  ...   os.environ['XLA_FLAGS']
  '--xla_gpu_autotune_level=2 --xla_dump_to=dumps'
  """
  flags_now = os.environ.get('XLA_FLAGS', '')
  missing = [flag for flag in flags if flag.split('=')[0] not in flags_now and _is_known(flag)]
  if missing:
    os.environ['XLA_FLAGS'] = ' '.join([flags_now, *missing]).strip()


@functools.cache
def _is_known(flag):
  """Whether the flag's name is a string in XLA's library, by far the largest file of jaxlib; takes about 10 ms.

  There is no list of the flags, nor any way to try one: an unknown one ends the process.
  """
  name = flag.removeprefix('--').split('=')[0].encode() + b'\0'
  files = [path for path in pathlib.Path(jaxlib.__file__).parent.iterdir() if path.is_file()]
  with (
    max(files, key=lambda path: path.stat().st_size).open('rb') as library,
    mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as text,
  ):
    return text.find(name) >= 0
