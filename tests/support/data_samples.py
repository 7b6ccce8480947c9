"""Small data sets in the original file formats."""

import csv
import gzip
import io
import pathlib
import struct

import numpy as np

WORDS = ('the', 'of', 'cat', 'sat', 'dog', 'mat')


def idx(array: np.ndarray) -> bytes:
  return bytes([0, 0, 8, array.ndim]) + struct.pack(f'>{array.ndim}I', *array.shape) + array.astype(np.uint8).tobytes()


def mnist_arrays(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(seed)
  return rng.integers(0, 256, (size, 28, 28), np.uint8), (np.arange(size) % 10).astype(np.uint8)


def write_mnist(folder: pathlib.Path, *, compressed: bool, dash: str = '-') -> None:
  folder.mkdir(parents=True, exist_ok=True)
  for stem, size in (('train', 30), ('t10k', 20)):
    images, labels = mnist_arrays(size)
    for name, array in ((f'images{dash}idx3', images), (f'labels{dash}idx1', labels)):
      write(folder / f'{stem}-{name}-ubyte', idx(array), compressed=compressed)


def csv_bytes(rows: list[tuple[int, str, str]]) -> bytes:
  text = io.StringIO()
  for number, *strings in rows:
    text.write(f'{number},')
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator='\n').writerow(strings)
  return text.getvalue().encode()


def dbpedia_rows(size: int) -> list[tuple[int, str, str]]:
  return [(i % 14 + 1, '' if i % 2 else f'The "{WORDS[i % 6]}"', f' Of {WORDS[i % 5]} été no{i}') for i in range(size)]


def write_dbpedia(folder: pathlib.Path, *, compressed: bool = False) -> None:
  folder.mkdir(parents=True, exist_ok=True)
  write(folder / 'train.csv', csv_bytes(dbpedia_rows(42)), compressed=compressed)
  write(folder / 'test.csv', csv_bytes(dbpedia_rows(14)), compressed=compressed)


def glove_bytes(words=WORDS, dimension: int = 50) -> bytes:
  numbers = [' '.join(f'{row + column / 100:.4g}' for column in range(dimension)) for row in range(1, len(words) + 1)]
  return ''.join(f'{word} {values}\n' for word, values in zip(words, numbers)).encode()


def write_glove(folder: pathlib.Path, *, compressed: bool = False) -> None:
  folder.mkdir(parents=True, exist_ok=True)
  write(folder / 'glove.6B.50d.txt', glove_bytes(), compressed=compressed)


def features(rows: int = 5) -> dict[str, np.ndarray]:
  x = np.arange(rows * 2048, dtype=np.float32).reshape(rows, 2048).astype(np.float16) / 8
  return {'x_train': x, 'y_train': np.arange(rows, dtype=np.int64), 'x_test': x[:2], 'y_test': np.array([199, 0])}


def write_features(folder: pathlib.Path, arrays: dict[str, np.ndarray] | None = None) -> pathlib.Path:
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / 'inception_v3_features.npz'
  np.savez_compressed(path, **(features() if arrays is None else arrays))
  return path


def jpeg(colour: int, mode: str = 'RGB') -> bytes:
  from PIL import Image

  data = io.BytesIO()
  Image.new(mode, (64, 64), colour if mode == 'L' else (colour, colour, 0)).save(data, 'jpeg')
  return data.getvalue()


def tiny_imagenet_files(classes: int = 3, train: int = 4, val: int = 2) -> dict[str, bytes]:
  """File contents by path inside tiny-imagenet-200/; the images of the last class are grey."""
  wnids = [f'n{90000000 - i:08d}' for i in range(classes)]
  found = {'wnids.txt': ''.join(f'{wnid}\n' for wnid in wnids).encode()}
  lines = []
  for label, wnid in enumerate(wnids):
    mode = 'L' if label == classes - 1 else 'RGB'
    for i in range(train):
      found[f'train/{wnid}/images/{wnid}_{i * 9}.JPEG'] = jpeg(10 * label + i, mode)
    found[f'train/{wnid}/{wnid}_boxes.txt'] = b''
    for i in range(val):
      name = f'val_{label * val + i}.JPEG'
      found[f'val/images/{name}'] = jpeg(100 + label, mode)
      lines.append(f'{name}\t{wnid}\t0\t0\t63\t63\n')
  found['val/val_annotations.txt'] = ''.join(lines).encode()
  found['test/images/test_0.JPEG'] = jpeg(0)
  return found


def write_tree(folder: pathlib.Path, contents: dict[str, bytes]) -> None:
  for name, data in contents.items():
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def write(path: pathlib.Path, data: bytes, *, compressed: bool) -> None:
  if compressed:
    path.with_name(path.name + '.gz').write_bytes(gzip.compress(data))
  else:
    path.write_bytes(data)
