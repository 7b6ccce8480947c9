"""The IDX format of the original MNIST files."""

import math
import os

import numpy as np

from vrl_jax.data import files
from vrl_jax.errors import DataError

_UINT8 = 0x08


def read_idx(path: str | os.PathLike, shape: tuple[int | None, ...]) -> np.ndarray:
  """Reads an IDX file of unsigned bytes, packed with gzip or not.

  The format: two zero bytes, the type (0x08 for unsigned bytes), the number of dimensions, each dimension as a
  big-endian uint32, then the data in C order.

  Args:
    path: the file.
    shape: the shape that is expected; None stands for any size.

  Returns:
    A writable uint8 array.

  Raises:
    DataError: the file is not such a file, or is damaged or cut off.

  >>> import pathlib, tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = pathlib.Path(folder, 'labels-idx1-ubyte')
  ...   _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))  # bytes, one dimension, of 3
  ...   read_idx(path, (None,))
  array([7, 2, 1], dtype=uint8)
  """
  data = files.read_bytes(path)
  magic = bytes([0, 0, _UINT8, len(shape)])
  if data[:4] != magic:
    raise DataError(
      f'{path}, byte 0: starts with {data[:4].hex(" ") or "nothing"} where an IDX file of this kind has '
      f'{magic.hex(" ")}: it is another file or damaged; download it again'
    )
  start = 4 + 4 * len(shape)
  if len(data) < start:
    raise DataError(f'{path}, byte {len(data)}: cut off inside the header of {start} bytes: download it again')
  sizes = tuple(int(size) for size in np.frombuffer(data, '>u4', count=len(shape), offset=4))
  if any(want not in (None, size) for want, size in zip(shape, sizes)) or 0 in sizes:
    wanted = ' x '.join('n' if want is None else str(want) for want in shape)
    raise DataError(f'{path}, byte 4: holds {" x ".join(map(str, sizes))} values where {wanted} (n > 0) are expected')
  if len(data) != start + math.prod(sizes):
    raise DataError(
      f'{path}, byte {len(data)}: the header announces {math.prod(sizes)} values and {len(data) - start} follow: the '
      'file is cut off or damaged; download it again'
    )
  return np.frombuffer(data, np.uint8, offset=start).reshape(sizes).copy()
