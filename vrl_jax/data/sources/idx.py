"""The IDX format of the original MNIST files."""

import math
import os

import numpy as np

from vrl_jax.data.sources import files
from vrl_jax.errors import DataError

_UINT8 = 0x08


def read_idx(path: str | os.PathLike, shape: tuple[int | None, ...]) -> np.ndarray:
  """Reads an IDX file of unsigned bytes, gzip or not.

  The format: two zero bytes, the type (0x08 for unsigned bytes), the number of dimensions, each dimension as a
  big-endian uint32, then the data in C order.

  Args:
    path: the file.
    shape: the expected shape; None stands for any size.

  Returns:
    A writable uint8 array.

  Raises:
    DataError: the file has another format or shape, or is damaged or truncated.

  >>> import pathlib, tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'labels-idx1-ubyte')
  ...   _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))  # uint8, one dimension of size 3
  ...   read_idx(path, (None,))
  array([7, 2, 1], dtype=uint8)
  """
  with files.open_binary(path) as stream:
    return _read_stream(stream, path, shape)


def _read_stream(stream, path, shape):
  magic = bytes([0, 0, _UINT8, len(shape)])
  start = 4 + 4 * len(shape)
  data = stream.read(start)
  if data[:4] != magic:
    raise DataError(
      f'{path}, byte 0: starts with {data[:4].hex(" ") or "nothing"}, must start with {magic.hex(" ")}: the file is '
      'damaged or is another file; download it again'
    )
  if len(data) < start:
    raise DataError(f'{path}, byte {len(data)}: truncated inside the header of {start} bytes: download it again')
  sizes = tuple(int(size) for size in np.frombuffer(data, '>u4', count=len(shape), offset=4))
  if any(want not in (None, size) for want, size in zip(shape, sizes)) or not 0 < math.prod(sizes) < files.MAX_INFLATED:
    wanted = ' x '.join('n' if want is None else str(want) for want in shape)
    raise DataError(
      f'{path}, byte 4: has {" x ".join(map(str, sizes))} values, must have {wanted} (n > 0, and less than 2^30 bytes)'
    )
  values = stream.read(math.prod(sizes) + 1)  # not all: compressed data can be endless
  if len(values) != math.prod(sizes):
    count = 'more' if len(values) > math.prod(sizes) else len(values)
    raise DataError(
      f'{path}, byte {start + len(values)}: has {count} values, must have {math.prod(sizes)} by its header: the '
      'file is truncated or damaged; download it again'
    )
  return np.frombuffer(values, np.uint8).reshape(sizes).copy()
